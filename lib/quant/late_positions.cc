#include "quant/late_positions.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "quant/observations.h"

namespace kvcal {
namespace {

constexpr int64_t kFewPositions = 64;
constexpr float kNoticed = 1.0f + 1.0f / 16.0f;

/// The bucket whose beginning is nearest to three quarters of so many positions.
size_t last_quarter(int64_t positions) {
  const int64_t wanted = positions * 3 / 4;
  const size_t bucket = position_bucket(wanted);
  const int64_t behind = first_position(bucket + 1);
  return behind < positions && behind - wanted < wanted - first_position(bucket) ? bucket + 1
                                                                                 : bucket;
}

bool is_late(const std::vector<Amax>& amax, size_t quarter) {
  if (amax.size() <= quarter) return false;
  const auto begin = amax.begin() + static_cast<std::ptrdiff_t>(quarter);
  const auto largest = [](auto first, auto last) {
    return std::ranges::max_element(first, last, {}, &Amax::value)->value;
  };
  return largest(begin, amax.end()) > kNoticed * largest(amax.begin(), begin);
}

}  // namespace

std::optional<LatePositions> late_positions(std::span<const AttentionCalibration> layers,
                                            int64_t longest_sample, int64_t max_positions) {
  if (longest_sample < kFewPositions) return std::nullopt;
  if (max_positions > 0 && longest_sample >= max_positions) return std::nullopt;
  const size_t quarter = last_quarter(longest_sample);
  LatePositions late{.first = first_position(quarter), .advised = 2 * longest_sample};
  if (max_positions > 0) late.advised = std::min(late.advised, max_positions);
  for (const AttentionCalibration& layer : layers) {
    if (layer.ignored) continue;
    if (is_late(layer.k.position_amax, quarter)) late.k_layers.push_back(layer.layer);
    if (is_late(layer.v.position_amax, quarter)) late.v_layers.push_back(layer.layer);
  }
  if (late.k_layers.empty() && late.v_layers.empty()) return std::nullopt;
  return late;
}

std::string late_positions_text(const LatePositions& late) {
  std::vector<std::string> sides;
  for (const auto& [name, layers] :
       {std::pair{"K", &late.k_layers}, std::pair{"V", &late.v_layers}})
    if (!layers->empty()) sides.push_back(std::string(name) + " of " + layer_range_text(*layers));
  return join(sides, " and ") + (sides.size() == 1 ? " is" : " are") +
         " still largest at the last positions, from " + std::to_string(late.first) +
         " on: choose samples of " + counted(late.advised, "token") + " or more";
}

}  // namespace kvcal
