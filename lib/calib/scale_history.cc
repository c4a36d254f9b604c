#include "calib/scale_history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "core/error.h"

namespace kvcal {
namespace {

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

std::vector<ScaleHistory::PlacedScale> ScaleHistory::scales_of(const Calibration& calibration) {
  std::vector<PlacedScale> all;
  const auto add_side = [&](const AttentionCalibration& layer, const KvTensorCalibration& side,
                            const char* name) {
    for (size_t i = 0; i < side.scales.size(); ++i) {
      ScaleMove place{.module = layer.module, .layer = layer.layer, .scale = name};
      if (side.scales.size() > 1) place.head = static_cast<int64_t>(i);
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
