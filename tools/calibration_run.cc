#include "calibration_run.h"

#include "calib/quant_plan.h"
#include "export/checkpoint_copy.h"
#include "model/divided_forward.h"
#include "model/unrun_modules.h"
#include "model/weights.h"
#include "output_formats.h"
#include "process_limit.h"
#include "state/resumable_forward.h"

namespace kvcal {

ExportInput CalibrationSubject::output_of(const Calibration& calibration) const {
  return {.model = model_dir,
          .calibration = calibration,
          .recipe = &recipe,
          .kept = kept ? &*kept : nullptr};
}

CalibrationSubject make_subject(Recipe recipe, const std::string& recipe_name,
                                const std::string& model, Diagnostics& diagnostics) {
  ModelDir model_dir(model);
  ModelConfig config = read_config(model_dir);
  QuantPlan plan = in_context(recipe_name, [&] {
    return resolve_plan(recipe, config, diagnostics, unrun_modules(model_dir, config));
  });
  auto kept = kept_weights(model_dir, config);
  return {std::move(recipe), std::move(model_dir), std::move(config), std::move(plan),
          std::move(kept)};
}

std::vector<Sample> samples_for(const CalibrationSubject& subject, const Dataset& dataset,
                                const SampleOptions& options, Diagnostics& diagnostics) {
  // Already tokenized data needs no tokenizer.
  const bool is_tokenized = std::holds_alternative<std::vector<TokenId>>(dataset.record(0).content);
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatFormat> chat;
  if (!is_tokenized) {
    tokenizer = make_tokenizer(subject.model_dir.path());
    chat = ChatFormat::from_folder(subject.model_dir.path());
  }
  return read_samples(dataset, tokenizer.get(), chat ? &*chat : nullptr, subject.config.vocab_size,
                      options, diagnostics);
}

std::vector<Backend*> borrowed(const std::vector<std::unique_ptr<Backend>>& backends) {
  std::vector<Backend*> all;
  for (const auto& backend : backends) all.push_back(backend.get());
  return all;
}

namespace {

/// Makes forward passes over samples of a run. Borrows.
class ForwardMaker {
 public:
  ForwardMaker(const CalibrationSubject& subject, const CalibrationRun& run,
               const CalibrationOptions& options)
      : subject_(subject),
        run_(run),
        observation_(observation_of(subject.plan, options)),
        weights_(in_context(subject.model_dir.given_path().string(),
                            [&] { return Weights(subject.model_dir, subject.config); })) {}

  /// What it is given is borrowed by the forward pass.
  std::unique_ptr<LayerForward> make(std::span<const Sample> samples,
                                     Diagnostics& diagnostics) const {
    if (!run_.state) return make_forward(samples, /*is_restored=*/false, diagnostics);
    std::vector<int64_t> lengths;
    for (const Sample& sample : samples) lengths.push_back(std::ssize(sample.ids));
    return std::make_unique<ResumableForward>(*run_.state, subject_.config, std::move(lengths),
                                              [=, this, &diagnostics](bool restored) {
                                                return make_forward(samples, restored, diagnostics);
                                              });
  }

 private:
  std::unique_ptr<LayerForward> make_forward(std::span<const Sample> samples, bool is_restored,
                                             Diagnostics& diagnostics) const {
    LayerwiseOptions layerwise = run_.layerwise;
    layerwise.observation = observation_;
    layerwise.is_restored = is_restored;
    layerwise.shows_hidden = run_.state != nullptr;
    // What passes before it left behind is the process's, too.
    if (run_.backends.at(0)->is_host())
      set_process_memory(layerwise, subject_.config, run_.threads);
    std::vector<std::span<const TokenId>> ids;
    for (const Sample& sample : samples) ids.emplace_back(sample.ids);
    return std::make_unique<DividedForward>(subject_.config, weights_, run_.backends, ids,
                                            layerwise, diagnostics);
  }

  const CalibrationSubject& subject_;
  const CalibrationRun& run_;
  ObservationRequest observation_;
  Weights weights_;
};

}  // namespace

Calibration measure(const CalibrationSubject& subject, const CalibrationRun& run,
                    const CalibrationOptions& options, Statistics* kept, Diagnostics& diagnostics) {
  const ForwardMaker forwards(subject, run, options);
  return calibrate(*forwards.make(run.samples, diagnostics), subject.config, subject.plan,
                   run.samples, options, kept, diagnostics);
}

StableCalibration measure_until_stable(const CalibrationSubject& subject, const CalibrationRun& run,
                                       const CalibrationOptions& options, const StopRule& rule,
                                       Statistics* kept, Diagnostics& diagnostics) {
  const ForwardMaker forwards(subject, run, options);
  return calibrate_until_stable([&](std::span<const Sample> samples,
                                    Diagnostics& told) { return forwards.make(samples, told); },
                                subject.config, subject.plan, run.samples, options, rule, kept,
                                diagnostics);
}

}  // namespace kvcal
