#include "calib/stable_calibration.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "calib/compared_scales.h"
#include "calib/exact_pass.h"
#include "calib/scale_history.h"

namespace kvcal {
namespace {

/// Merges the progress of all rounds into one, and reports messages of all rounds once.
class RoundDiagnostics : public Diagnostics {
 public:
  RoundDiagnostics(Diagnostics& diagnostics, int64_t all_tokens)
      : diagnostics_(diagnostics), all_tokens_(all_tokens) {}

  void begin(int64_t tokens_before) { tokens_before_ = tokens_before; }
  void warn(const std::string& message) override {
    if (told_.insert(message).second) diagnostics_.warn(message);
  }
  void inform(const std::string& lines) override {
    if (told_.insert(lines).second) diagnostics_.inform(lines);
  }
  void progress(std::string_view, int64_t done, int64_t, std::string_view unit) override {
    diagnostics_.progress("observing", tokens_before_ + done, all_tokens_, unit);
  }

 private:
  Diagnostics& diagnostics_;
  int64_t all_tokens_, tokens_before_ = 0;
  std::set<std::string> told_;
};

std::string percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %%", 100.0 * ratio);
  return text;
}

std::string counted(int64_t samples) {
  return std::to_string(samples) + (samples == 1 ? " sample" : " samples");
}

/// Reason for the user why the scales did not settle.
std::string reason(const StopOutcome& stop) {
  if (!stop.largest_move)
    return "they are fewer than two windows of " + std::to_string(stop.rule.window) +
           ", so nothing could be compared";
  const ScaleMove& move = *stop.largest_move;
  std::string what = move.scale + " of " + move.module;
  if (move.head) what += ", head " + std::to_string(*move.head) + ",";
  const std::string window = counted(move.num_samples);
  if (!move.ratio) return what + " was not there " + window + " before: no token had reached it";
  return what + " moved by " + percent(*move.ratio) + " in the last " + window + ", the limit is " +
         percent(stop.rule.ratio);
}

/// Compares attention with the scales made, in one more exact pass over the samples that it takes.
void compare_attention(const MakeForward& make_forward, const ModelConfig& config,
                       const QuantPlan& plan, std::span<const Sample> samples,
                       const CalibrationOptions& options, Calibration& calibration) {
  if (options.compared_samples == 0) return;
  SilentDiagnostics silent;
  const auto forward =
      make_forward(samples.first(static_cast<size_t>(options.compared_samples)), silent);
  const ObservationRequest observation = observation_of(plan, options);
  ExactPass pass(*forward, config, observation);
  for (int64_t layer = 0; layer <= pass.last_layer(); ++layer) {
    pass.run(layer);
    const auto found = std::ranges::find(calibration.layers, layer, &AttentionCalibration::layer);
    if (found != calibration.layers.end() && !found->ignored && observation.compares(layer, config))
      found->damage = damage_of(*forward, config, *found, options);
  }
}

}  // namespace

StableCalibration calibrate_until_stable(const MakeForward& make_forward, const ModelConfig& config,
                                         const QuantPlan& plan, std::span<const Sample> samples,
                                         const CalibrationOptions& options, const StopRule& rule,
                                         Statistics* kept, Diagnostics& diagnostics) {
  KVCAL_CHECK(rule.window > 0 && !samples.empty());
  const auto window = static_cast<size_t>(rule.window);
  DeriveOptions early = options.derive;
  early.leaves_out_unseen = true;  // later samples may reach them
  SilentDiagnostics silent;
  RoundDiagnostics told(diagnostics, tokens_of(samples));
  ObservationRequest observation = observation_of(plan, options);
  observation.compared_samples.reset();  // no scales are made yet
  ExactRounds rounds(config, observation);
  ScaleHistory history(rule);
  Statistics statistics;
  size_t used = 0;
  while (used < samples.size() && !history.is_stable()) {
    const auto round = samples.subspan(used, std::min(window, samples.size() - used));
    told.begin(tokens_of(samples.first(used)));
    rounds.add(*make_forward(round, told), round.size());
    used += round.size();
    statistics = rounds.statistics(samples.first(used));
    history.add(static_cast<int64_t>(used), derive(statistics, plan, config, early, silent));
  }

  StableCalibration result{.calibration = {},
                           .stop = {.rule = rule,
                                    .num_samples = static_cast<int64_t>(used),
                                    .max_samples = std::ssize(samples),
                                    .is_stable = history.is_stable(),
                                    .largest_move = history.largest_move()}};
  if (!result.stop.is_stable)
    diagnostics.warn("the scales are not stable after " + counted(result.stop.num_samples) + ": " +
                     reason(result.stop));
  const std::span<const Sample> first = samples.first(used);
  CalibrationOptions all = options;
  if (options.compared_samples > 0) all.compared_samples = compared_samples(lengths_of(first));
  if (needs_one_pass(plan, options)) {
    result.calibration = derive(statistics, plan, config, options.derive, diagnostics);
    compare_attention(make_forward, config, plan, first, all, result.calibration);
    for (AttentionStatistics& seen : statistics.attention) {
      const auto layer =
          std::ranges::find(result.calibration.layers, seen.module, &AttentionCalibration::module);
      if (layer != result.calibration.layers.end()) seen.compared = compared_scales(*layer);
    }
    if (kept) *kept = std::move(statistics);
  } else {
    result.calibration =
        calibrate(*make_forward(first, diagnostics), config, plan, first, all, kept, diagnostics);
  }
  return result;
}

}  // namespace kvcal
