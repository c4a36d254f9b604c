#include "calib/stable_calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "calib/statistics/observed_statistics.h"
#include "core/error.h"
#include "core/text.h"

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

/// Reason for the user why the scales did not settle.
std::string reason(const StopOutcome& stop) {
  if (!stop.largest_move)
    return "they are fewer than two windows of " + std::to_string(stop.rule.window) +
           ", so nothing could be compared";
  const ScaleMove& move = *stop.largest_move;
  std::string what = move.scale + " of " + move.module;
  if (move.head) what += ", head " + std::to_string(*move.head) + ",";
  if (move.channel) what += ", channel " + std::to_string(*move.channel) + ",";
  const std::string window = counted(move.num_samples, "sample");
  if (!move.ratio) return what + " was not there " + window + " before: no token had reached it";
  return what + " moved by " + fixed("%.3g %%", 100.0 * *move.ratio) + " in the last " + window +
         ", the limit is " + fixed("%.3g %%", 100.0 * stop.rule.ratio);
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
  forward->request(observation);
  for (int64_t layer = 0; layer <= observation.last_layer(config); ++layer) {
    run_exact(*forward, config, observation, layer);
    const auto found = std::ranges::find(calibration.layers, layer, &AttentionCalibration::layer);
    if (found != calibration.layers.end() && !found->ignored && observation.compares(layer, config))
      found->damage = damage_of(*forward, config, *found, calibration.kv_format);
  }
}

/// Size for comparisons: a missing scale counts as a larger move than any other.
double size_of(const ScaleMove& move) {
  return move.ratio.value_or(std::numeric_limits<double>::infinity());
}

std::optional<double> ratio_between(std::optional<Scale> before, std::optional<Scale> after) {
  if (!before || !after) return {};
  const auto from = static_cast<double>(before->value);
  return std::fabs(static_cast<double>(after->value) - from) / from;
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
    diagnostics.warn("the scales are not stable after " +
                     counted(result.stop.num_samples, "sample") + ": " + reason(result.stop));
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

std::vector<ScaleHistory::PlacedScale> ScaleHistory::scales_of(const Calibration& calibration) {
  std::vector<PlacedScale> all;
  const auto add_side = [&](const AttentionCalibration& layer, const KvTensorCalibration& side,
                            const char* name) {
    for (size_t i = 0; i < side.scales.size(); ++i) {
      ScaleMove place{.module = layer.module, .layer = layer.layer, .scale = name};
      const size_t heads = side.head_ranges.size();
      const bool has_channels = heads > 0 && side.scales.size() > heads;
      if (side.scales.size() > 1)
        (has_channels ? place.channel : place.head) = static_cast<int64_t>(i);
      all.push_back({std::move(place), side.scales[i]});
    }
  };
  for (const AttentionCalibration& layer : calibration.layers) {
    if (layer.ignored) continue;
    add_side(layer, layer.k, "k_scale");
    add_side(layer, layer.v, "v_scale");
    if (layer.q) add_side(layer, *layer.q, "q_scale");
  }
  std::map<std::string_view, Scale> inputs;
  for (const LinearCalibration& linear : calibration.linears)
    inputs.emplace(linear.module, linear.input_scale);
  for (const PlannedLinear& linear : calibration.plan.linears) {
    const auto& args = calibration.plan.groups[linear.group].input_activations;
    if (!args || args->dynamic) continue;
    const auto found = inputs.find(linear.module);
    all.push_back({{.module = linear.module, .layer = linear.layer, .scale = "input_scale"},
                   found == inputs.end() ? std::nullopt : std::optional(found->second)});
  }
  return all;
}

void ScaleHistory::add(int64_t num_samples, const Calibration& calibration) {
  KVCAL_CHECK(snapshots_.empty() || num_samples > snapshots_.back().num_samples);
  snapshots_.push_back({num_samples, scales_of(calibration)});
  // Snapshots before the compared one are no longer needed.
  if (const Snapshot* before = window_before())
    snapshots_.erase(snapshots_.begin(), snapshots_.begin() + (before - snapshots_.data()));
}

const ScaleHistory::Snapshot* ScaleHistory::window_before() const {
  const Snapshot* found = nullptr;
  for (const Snapshot& snapshot : snapshots_)
    if (snapshot.num_samples + rule_.window <= snapshots_.back().num_samples) found = &snapshot;
  return found;
}

std::optional<ScaleMove> ScaleHistory::largest_move() const {
  const Snapshot* before = window_before();
  if (!before) return {};
  const Snapshot& now = snapshots_.back();
  KVCAL_CHECK(before->scales.size() == now.scales.size());
  std::optional<ScaleMove> largest;
  for (size_t i = 0; i < now.scales.size(); ++i) {
    ScaleMove move = now.scales[i].place;
    move.num_samples = now.num_samples - before->num_samples;
    move.ratio = ratio_between(before->scales[i].scale, now.scales[i].scale);
    if (!largest || size_of(move) > size_of(*largest)) largest = std::move(move);
  }
  return largest;
}

bool ScaleHistory::is_stable() const {
  const std::optional<ScaleMove> move = largest_move();
  return move && size_of(*move) <= rule_.ratio;
}

}  // namespace kvcal
