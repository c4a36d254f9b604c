#include <algorithm>

#include "core/text.h"
#include "engines/scale_loading.h"
#include "family/expected_tensors.h"
#include "stored/read_model_config.h"

namespace kvcal {
namespace {

/// How the engine's drafts of such models read scales; nullptr: not known.
const NameReading* reading_of(const VerifyCase& subject) {
  if (declares_weights(subject.declaration)) return nullptr;  // tried with 16-bit weights
  const auto found = subject.engine.seen().drafts.find(subject.model_type);
  return found == subject.engine.seen().drafts.end() ||
                 found->second.method != subject.declaration.method
             ? nullptr
             : &found->second;
}

class DraftChecker {
 public:
  /// config: with the draft layer.
  DraftChecker(const NameReading& reading, const ModelConfig& config, Findings& findings)
      : reading_(reading),
        layer_(config.num_hidden_layers),
        module_(draft_scale_module(config, layer_)),
        findings_(findings) {}

  void judge(const ScaleTensor& tensor) {
    using enum NameOutcome;
    const TriedName tried = tried_name(reading_, tensor.rest);
    if (tried.outcome == kRefused)
      findings_.add(layer_, Severity::kError, "its loader of drafts stops at " + tensor.name,
                    remedy(tried.side));
    else if (tried.outcome == kDropped)
      findings_.add(layer_, Severity::kWarning,
                    "its loader of drafts drops " + tensor.name +
                        ": an FP8 cache of the draft has the scale 1.0",
                    reading_.has(kLoaded) ? remedy(tried.side) : "");
    else if (tried.outcome == kNotTried)
      findings_.add(layer_, Severity::kNote,
                    "not known: what its loader of drafts does with " + tensor.name);
  }

  void tell_none() {
    if (reading_.has(NameOutcome::kLoaded))
      findings_.add(layer_, Severity::kWarning,
                    "the draft layer has no scales: the FP8 cache of the draft has the "
                    "scale 1.0",
                    "calibrate the model without --no-mtp");
  }

 private:
  std::string remedy(char side) const {
    return reading_.has(NameOutcome::kLoaded)
               ? "rename it to " + replaced(module_ + ".{}_scale", "{}", {&side, 1})
               : "remove the tensor";
  }

  const NameReading& reading_;
  int64_t layer_;
  std::string module_;  ///< with {} for k or v, as calibrate names the scales
  Findings& findings_;
};

}  // namespace

void check_draft_scales(const VerifyCase& subject, const ModelDir& model_dir, bool has_fp8_cache,
                        Findings& findings) {
  ModelConfig config = subject.config;
  SilentDiagnostics silent;
  find_draft_layer(model_dir, config, silent);
  if (!config.has_draft()) return;
  const std::vector<ScaleTensor> tensors = draft_scale_tensors(model_dir, config);
  if (!subject.engine.seen().runs_drafts) {
    if (!tensors.empty())
      findings.add(config.num_hidden_layers, Severity::kNote,
                   "it runs no draft layers and passes over the scales of this one");
    return;
  }
  const NameReading* reading = reading_of(subject);
  if (!reading) {
    if (!tensors.empty())
      findings.add(config.num_hidden_layers, Severity::kNote,
                   "not known: whether its drafts read the scales of the draft layer");
    return;
  }
  DraftChecker checker(*reading, config, findings);
  for (const ScaleTensor& tensor : tensors) checker.judge(tensor);
  if (tensors.empty() && has_fp8_cache) checker.tell_none();
}

}  // namespace kvcal
