#include "forward/zero_cache.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "family/architecture.h"

namespace kvcal {
namespace {

bool is_zero(const KvObservation& seen) {
  const auto is_empty = [](const ObservedRange& range) { return range.min > range.max; };
  const auto holds_zeros = [&](const ObservedRange& range) {
    return range.first_nonfinite < 0 &&
           (is_empty(range) || (range.min == 0.0f && range.max == 0.0f));
  };
  return std::ranges::all_of(seen.ranges, holds_zeros) &&
         !std::ranges::all_of(seen.ranges, is_empty);
}

/// Whether the role's weights are all zero, as the forward pass applies them.
bool has_zeros_alone(const ModelConfig& config, const Weights& weights, int64_t layer, Role role) {
  if (!weights.has(layer, role)) return false;
  const bool is_norm = role == Role::kInputNorm || role == Role::kKeyNorm;
  const float zero = is_norm && config.architecture->norm_adds_one ? -1.0f : 0.0f;
  const WeightRows rows = weights.rows(layer, role);
  return std::ranges::all_of(rows.parts, [&](const TensorView& part) {
    return std::ranges::all_of(as_float32(std::span(&part, 1)),
                               [&](float value) { return value == zero; });
  });
}

void refuse(std::string_view side, const KvObservation& seen, std::span<const Role> roles,
            const ModelConfig& config, const Weights& weights, int64_t layer) {
  if (!is_zero(seen)) return;
  for (const Role role : roles)
    if (has_zeros_alone(config, weights, layer, role)) return;
  fail(
      side, " of layer ", layer,
      " is zero in every head of every record, and its weights are not: expected values from which "
      "a scale can be made; a norm before it may have numbers beyond the range of float32, or an "
      "earlier layer makes zeros");
}

}  // namespace

void refuse_zero_cache(const LayerObservation& seen, const ModelConfig& config,
                       const Weights& weights, int64_t layer) {
  if (!config.has_own_cache(layer)) return;
  constexpr std::array kKeyRoles{Role::kInputNorm, Role::kKey, Role::kKeyNorm};
  constexpr std::array kValueRoles{Role::kInputNorm, Role::kValue};
  constexpr std::array kLatentRoles{Role::kInputNorm, Role::kLatent, Role::kLatentNorm};
  const bool is_latent = config.architecture->has_latent_attention;
  const bool has_value = config.layer(layer).has_value_projection;
  const std::span<const Role> keys = is_latent ? std::span<const Role>(kLatentRoles) : kKeyRoles;
  const std::span<const Role> values = is_latent   ? std::span<const Role>(kLatentRoles)
                                       : has_value ? std::span<const Role>(kValueRoles)
                                                   : std::span<const Role>(kKeyRoles).first(2);
  refuse("K", seen.k, keys, config, weights, layer);
  refuse("V", seen.v, values, config, weights, layer);
}

}  // namespace kvcal
