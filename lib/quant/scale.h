#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "quant/fp8.h"

namespace kvcal {

/// Largest observed magnitude, in the tensor's units. Finite, never negative.
struct Amax {
  float value = 0.0f;
};

/// Smallest and largest observed value. Empty (min > max) until a value is added.
struct Range {
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();

  bool empty() const { return min > max; }
  void fold(Range other) {
    min = std::min(min, other.min);
    max = std::max(max, other.max);
  }
  Amax amax() const { return empty() ? Amax{} : Amax{std::max(std::fabs(min), std::fabs(max))}; }
};

/// The factor of a stored code: real = scale * code.
struct Scale {
  float value = 1.0f;
};

/// The only place where an amax becomes a scale. A group of zeros gets float32's epsilon.
/// Source: compressed-tensors `calculate_qparams`, steps 1 and 5, symmetric.
KVCAL_HD inline Scale scale_from(Amax amax, fp8::Format format) {
  const float scale = amax.value / fp8::max_value(format);
  return {scale == 0.0f ? FLT_EPSILON : scale};
}

/// Whether a scale, its inverse and its products with FP8 codes from 1 on are finite and normal
/// numbers: others would become zeros or infinities, in this program and in engines.
inline bool is_usable(Scale scale) {
  return scale.value >= FLT_MIN && scale.value <= FLT_MAX / fp8::max_value(fp8::Format::kE5m2);
}
/// For messages: what a scale is expected to be.
inline constexpr std::string_view kUsableScale = "a scale from 1.2e-38 to 5.9e33";

/// Scales of one layer's cache: one value, or one a KV head. An ignored layer has none and keeps an
/// unquantized cache.
struct LayerKvScales {
  std::vector<Scale> k = {}, v = {};
  bool ignored = false;
  /// Scales of queries, which FP8 E4M3 attention reads with the cache's dtype: one value, or one an
  /// attention head; empty: queries are not quantized.
  std::vector<Scale> q = {};
  /// Scale of softmax weights that FP8 E4M3 attention rounds; nullopt: they are not rounded.
  std::optional<Scale> weights = {};
};

}  // namespace kvcal
