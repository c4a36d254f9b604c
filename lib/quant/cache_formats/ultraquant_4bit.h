#pragma once

#include "quant/cache_formats/hadamard.h"
#include "quant/cache_formats/steps.h"

/// E2M1 codes, and a power of two of each 32 values; K is rotated. Source, run: vLLM 0.33
/// v1/attention/ops/ultraquant/triton_store.py `_ultraquant_store_kernel` and reference.py
/// `ultraquant_dequant`; reads have products with rotated queries, which equal rotating K back but
/// for the order of float32 sums. The engine also rounds the rotated queries to E4M3, which is not
/// simulated.
namespace kvcal::cache_formats::ultraquant_4bit {

inline constexpr int64_t kBlock = 32;
inline constexpr SideLayout kSide{.bits = 4, .block = kBlock, .scale_bytes = 1, .multiple = kBlock};
inline constexpr CacheLayout kLayout{
    .k = kSide, .v = kSide, .power_of_two = true, .plain_layers = 2};

/// The E2M1 value nearest to x, ties to the lesser one; over 6 it is 6. No -0, and NaN stays.
KVCAL_HD constexpr float nearest_lesser_e2m1(float x) {
  if (x != x) return x;
  const float magnitude = magnitude_of(x);
  const float step = magnitude < 2.0f ? 0.5f : magnitude < 4.0f ? 1.0f : 2.0f;
  const float steps = magnitude / step;
  const auto below = static_cast<float>(static_cast<int32_t>(limited(steps, 0.0f, 8.0f)));
  const float over = steps - below;
  const bool goes_up = x > 0.0f ? over > 0.5f : over >= 0.5f;
  const float rounded = limited((goes_up ? below + 1.0f : below) * step, 0.0f, 6.0f);
  return x < 0.0f && rounded > 0.0f ? -rounded : rounded;
}

KVCAL_HD inline void round_block(float* x) {
  const float amax = amax_of(x, kBlock);
  const float exponent = ::floorf(log2_of(amax * 0.156f) + 0.5f);
  const float stored = amax == 0.0f ? 0.0f : exponent + 127.0f;
  const bool is_lost = !(stored > 0.0f);  // a stored 0 stands for 0
  const float scale = is_lost ? 0.0f : power_of_two(limited(stored, 0.0f, 254.0f));
  for (int64_t i = 0; i < kBlock; ++i)
    x[i] = is_lost ? 0.0f : nearest_lesser_e2m1(x[i] / scale) * scale;
}

KVCAL_HD inline void round_trip(const CachedHead& head) {
  constexpr float kHalfRoot = 0.70710678118654752440f;
  if (!head.is_value) transform(head.x, head.size, kHalfRoot);
  for (int64_t i = 0; i < head.size; i += kBlock) round_block(head.x + i);
  if (!head.is_value) transform(head.x, head.size, kHalfRoot);
}

}  // namespace kvcal::cache_formats::ultraquant_4bit
