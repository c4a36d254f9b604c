#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "family/architecture.h"
#include "forward/packed_linear.h"
#include "stored/weight_rows.h"

namespace kvcal {

/// Weights of a norm as they are applied.
inline std::vector<float> norm_weight(std::span<const TensorView> parts,
                                      const ModelConfig& config) {
  std::vector<float> values = as_float32(parts);
  if (config.architecture->norm_adds_one)
    for (float& value : values) value += 1.0f;
  return values;
}

inline PackedValues ones(int64_t width, Backend& backend) {
  return {std::vector<float>(static_cast<size_t>(width), 1.0f), backend};
}

inline std::vector<float> multiplied(std::vector<float> values, float multiplier) {
  for (float& value : values) value *= multiplier;
  return values;
}

/// Role of the biases of a matrix or norm, which has its name and "bias" behind; nullopt: none.
inline std::optional<Role> bias_of(Role role) {
  const std::string name = row_of(role).name + "_bias";
  const auto found = std::ranges::find(role_rows(), name, &RoleRow::name);
  return found == role_rows().end() ? std::nullopt : std::optional(found->role);
}

}  // namespace kvcal
