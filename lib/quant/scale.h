#pragma once

#include "quant/fp8.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

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

}  // namespace kvcal
