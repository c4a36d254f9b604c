#include "engines/draft_scales.h"

#include <algorithm>

#include "family/draft_layer.h"
#include "stored/find_draft_layer.h"

namespace kvcal {
namespace {

/// How the engine's drafts of such models read scales; nullptr: not known.
const DraftReading* reading_of(const VerifyCase& subject) {
  if (declares_weights(subject.declaration)) return nullptr;  // tried with 16-bit weights
  const auto& drafts = subject.engine.drafts;
  const auto found = std::ranges::find_if(drafts, [&](const DraftReading& reading) {
    return reading.method == subject.declaration.method &&
           std::ranges::find(reading.types, subject.model_type) != reading.types.end();
  });
  return found == drafts.end() ? nullptr : &*found;
}

/// A name with k or v for every {}.
std::string of_side(std::string name, char side) {
  for (size_t at; (at = name.find("{}")) != std::string::npos;) name.replace(at, 2, 1, side);
  return name;
}

/// The side whose scale a list of names has under this one: 'k', 'v', or 0 for neither.
char side_in(const std::vector<std::string_view>& names, const std::string& rest) {
  for (const char side : {'k', 'v'})
    for (const std::string_view name : names)
      if (of_side(std::string(name), side) == rest) return side;
  return 0;
}

class DraftChecker {
 public:
  /// config: with the draft layer.
  DraftChecker(const DraftReading& reading, const ModelConfig& config, Findings& findings)
      : reading_(reading),
        layer_(config.num_hidden_layers),
        module_(draft_scale_module(config, layer_)),
        findings_(findings) {}

  void judge(const ScaleTensor& tensor) {
    if (side_in(reading_.loaded, tensor.rest)) return;
    if (const char side = side_in(reading_.refused, tensor.rest))
      findings_.add_of_layer(layer_, Severity::kError,
                             "its loader of drafts stops at " + tensor.name, remedy(side));
    else if (const char dropped = side_in(reading_.dropped, tensor.rest))
      findings_.add_of_layer(layer_, Severity::kWarning,
                             "its loader of drafts drops " + tensor.name +
                                 ": an FP8 cache of the draft has the scale 1.0",
                             reading_.loaded.empty() ? "" : remedy(dropped));
    else
      findings_.add_of_layer(layer_, Severity::kNote,
                             "not known: what its loader of drafts does with " + tensor.name);
  }

  void tell_none() {
    if (!reading_.loaded.empty())
      findings_.add_of_layer(layer_, Severity::kWarning,
                             "the draft layer has no scales: the FP8 cache of the draft has the "
                             "scale 1.0",
                             "calibrate the model without --no-mtp");
  }

 private:
  std::string remedy(char side) const {
    return reading_.loaded.empty() ? "remove the tensor"
                                   : "rename it to " + of_side(module_ + ".{}_scale", side);
  }

  const DraftReading& reading_;
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
  if (!subject.engine.runs_drafts) {
    if (!tensors.empty())
      findings.add_of_layer(config.num_hidden_layers, Severity::kNote,
                            "it runs no draft layers and passes over the scales of this one");
    return;
  }
  const DraftReading* reading = reading_of(subject);
  if (!reading) {
    if (!tensors.empty())
      findings.add_of_layer(config.num_hidden_layers, Severity::kNote,
                            "not known: whether its drafts read the scales of the draft layer");
    return;
  }
  DraftChecker checker(*reading, config, findings);
  for (const ScaleTensor& tensor : tensors) checker.judge(tensor);
  if (tensors.empty() && has_fp8_cache) checker.tell_none();
}

}  // namespace kvcal
