#pragma once

#include "quant/cache_formats/steps.h"

/// E2M1 codes, and a power of two of each 16 values. Source, run: SGLang 0.5.23
/// srt/layers/quantization/kvfp4_tensor.py `FP4MXBlock16KVQuantizeUtil`; bfloat16, in which it
/// reads, holds the values exactly.
namespace kvcal::cache_formats::fp4_mx_block16 {

inline constexpr int64_t kBlock = 16;
inline constexpr SideLayout kSide{.bits = 4, .block = kBlock, .scale_bytes = 1, .multiple = kBlock};
inline constexpr CacheLayout kLayout{.k = kSide, .v = kSide};

/// The E2M1 value nearest to x, ties to the larger magnitude; over 6 it is 6.
KVCAL_HD constexpr float nearest_away_e2m1(float x) {
  const float magnitude = magnitude_of(x);
  const float step = magnitude < 2.0f ? 0.5f : magnitude < 4.0f ? 1.0f : 2.0f;
  const float rounded = limited(nearest_away(magnitude / step, 0.0f, 8.0f) * step, 0.0f, 6.0f);
  return x < 0.0f ? -rounded : rounded;
}

KVCAL_HD inline void round_block(float* x) {
  const float ratio = amax_of(x, kBlock) / 6.0f;
  const float exponent = ::ceilf(log2_of(ratio > 1e-10f ? ratio : 1e-10f));
  const float scale = power_of_two(limited(exponent + 127.0f, 0.0f, 254.0f));
  for (int64_t i = 0; i < kBlock; ++i) x[i] = nearest_away_e2m1(x[i] / scale) * scale;
}

KVCAL_HD inline void round_trip(const CachedHead& head) {
  for (int64_t i = 0; i < head.size; i += kBlock) round_block(head.x + i);
}

}  // namespace kvcal::cache_formats::fp4_mx_block16
