// Steps that simulated caches share. Plain float32 arithmetic, with equal results on host and
// device.
#pragma once

#include <cmath>
#include <cstdint>

#include "quant/cache_formats/layout.h"
#include "quant/fp8.h"
#include "quant/half.h"

namespace kvcal {

/// One head of one token, K after RoPE or V.
struct CachedHead {
  float* x = nullptr;
  int64_t size = 0;
  float scale = 1.0f;             ///< of the head, where the format needs scales
  const float* scales = nullptr;  ///< [size], of the channels; null: scale is of all
  bool is_value = false;          ///< V; or the rotated key beside a latent, which is K
  int64_t rotated = 0;            ///< dimensions of K that RoPE rotates, the first ones

  KVCAL_HD constexpr float scale_of(int64_t channel) const {
    return scales ? scales[channel] : scale;
  }
};

}  // namespace kvcal

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
/// Scale that a token makes for its head.
KVCAL_HD constexpr float own_scale(float made) {
  return made > 1e-6f ? made : 1e-6f;
}
/// The integer of [low, high] nearest to x, halves to even; both within 2^22. NaN stays.
KVCAL_HD constexpr float nearest_even(float x, float low, float high) {
  constexpr float kAnchor = 0x1.8p23f;  // the adder rounds: one step is worth 1 here
  const float inside = limited(x, low, high);
  return (inside + kAnchor) - kAnchor;
}
KVCAL_HD constexpr float through_e4m3(float x) {
  constexpr auto kFormat = fp8::Format::kE4m3Fn;
  return fp8::decode(fp8::encode(x, kFormat), kFormat);
}
KVCAL_HD constexpr float through_f16(float x) {
  return to_float(to_f16(x));
}
/// The E2M1 value nearest to x, ties to even; over 6 it is 6. NaN stays.
KVCAL_HD constexpr float nearest_e2m1(float x) {
  const float magnitude = magnitude_of(x);
  const float step = magnitude < 2.0f ? 0.5f : magnitude < 4.0f ? 1.0f : 2.0f;
  const float rounded = nearest_even(magnitude / step, 0.0f, 8.0f) * step;
  return float_of(bits_of(limited(rounded, 0.0f, 6.0f)) | (bits_of(x) & 0x80000000u));
}
/// float32's logarithm, rounded once, as that of engines: close over a power of two it is an
/// integer.
KVCAL_HD inline float log2_of(float x) {
  return static_cast<float>(::log2(static_cast<double>(x)));
}
/// 2^(stored - 127); stored is an integer of [0, 254].
KVCAL_HD constexpr float power_of_two(float stored) {
  return stored == 0.0f ? 0x1p-127f : float_of(static_cast<uint32_t>(stored) << 23);
}

}  // namespace kvcal::cache_formats
