#pragma once

#include "quant/cache_formats/steps.h"

/// Calibrated INT8: one scale a layer, a head or a channel. Codes are x · (1 / scale), rounded to
/// even and clamped to -128 … 127; reads give scale · code. Sources: vllm-ascend 182b75ea
/// attention_v1.py `_quantize_kv_to_int8`; TensorRT-LLM 1.3
/// cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttentionUtils.h `cast_to_int8`
/// (cvt.rni.sat.s8.f32) of x · kv_scale_orig_quant, which is 1 / scale, not run.
namespace kvcal::cache_formats::int8 {

inline constexpr SideLayout kSide{.bits = 8};
inline constexpr CacheLayout kLayout{
    .k = kSide, .v = kSide, .needs_scales = true, .largest = 127.0f, .holds = 127.5f};

inline constexpr float kLeast = -128.0f, kMost = 127.0f;

KVCAL_HD constexpr void round_trip(const CachedHead& head) {
  for (int64_t i = 0; i < head.size; ++i) {
    const float scale = head.scale_of(i), inverse = 1.0f / scale;
    head.x[i] = nearest_even(head.x[i] * inverse, kLeast, kMost) * scale;
  }
}

/// Finite values whose codes are clamped.
KVCAL_HD constexpr int64_t count_clipped(const CachedHead& head) {
  constexpr float kFar = 0x1p20f;  // where nearest_even still rounds
  int64_t count = 0;
  for (int64_t i = 0; i < head.size; ++i) {
    if (magnitude_of(head.x[i]) > 0x1.fffffep127f || head.x[i] != head.x[i]) continue;
    const float code = nearest_even(head.x[i] * (1.0f / head.scale_of(i)), -kFar, kFar);
    if (code < kLeast || code > kMost) ++count;
  }
  return count;
}

}  // namespace kvcal::cache_formats::int8
