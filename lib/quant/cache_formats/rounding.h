#pragma once

#include <cstdint>

#include "quant/host_device.h"

/// Steps that the formats of cache_format.h share. Plain float32 arithmetic, with equal results on
/// host and device.
namespace kvcal::cache_formats {

KVCAL_HD constexpr float magnitude_of(float x) {
  return float_of(bits_of(x) & 0x7fffffffu);
}
/// NaN stays.
KVCAL_HD constexpr float limited(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}
/// Largest magnitude of x [count]; NaN is passed over.
KVCAL_HD constexpr float amax_of(const float* x, int64_t count) {
  float amax = 0.0f;
  for (int64_t i = 0; i < count; ++i)
    if (const float magnitude = magnitude_of(x[i]); magnitude > amax) amax = magnitude;
  return amax;
}
/// The integer of [low, high] nearest to x, halves away from zero. NaN stays.
KVCAL_HD constexpr float nearest_away(float x, float low, float high) {
  if (x != x) return x;
  const float moved = limited(x >= 0.0f ? x + 0.5f : x - 0.5f, low, high);
  return static_cast<float>(static_cast<int32_t>(moved));
}
/// The integer of [low, high] nearest to x, halves to even; both within 2^22. NaN stays.
KVCAL_HD constexpr float nearest_even(float x, float low, float high) {
  constexpr float kAnchor = 0x1.8p23f;  // the adder rounds: one step is worth 1 here
  const float inside = limited(x, low, high);
  return (inside + kAnchor) - kAnchor;
}

}  // namespace kvcal::cache_formats
