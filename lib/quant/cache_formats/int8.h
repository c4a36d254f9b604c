#pragma once

#include "quant/cache_formats/steps.h"

/// Calibrated INT8: one scale a layer. Not compared with an engine: TensorRT-LLM 1.3
/// cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttentionUtils.h `cast_to_int8`
/// (cvt.rni.sat.s8.f32) of x · kv_scale_orig_quant, which is 1 / scale; reads give scale · code.
namespace kvcal::cache_formats::int8 {

inline constexpr SideLayout kSide{.bits = 8};
inline constexpr CacheLayout kLayout{
    .k = kSide, .v = kSide, .needs_scales = true, .largest = 127.0f, .holds = 127.5f};

KVCAL_HD constexpr void round_trip(const CachedHead& head) {
  const float inverse = 1.0f / head.scale;
  for (int64_t i = 0; i < head.size; ++i)
    head.x[i] = nearest_even(head.x[i] * inverse, -128.0f, 127.0f) * head.scale;
}

}  // namespace kvcal::cache_formats::int8
