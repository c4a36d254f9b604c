#pragma once

#include "quant/cache_formats/layout.h"
#include "quant/cache_formats/rounding.h"

/// Calibrated INT8: one scale a layer. Not compared with an engine: TensorRT-LLM 1.3
/// cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttentionUtils.h `cast_to_int8`
/// (cvt.rni.sat.s8.f32) of x · kv_scale_orig_quant, which is 1 / scale; reads give scale · code.
namespace kvcal::cache_formats::int8 {

inline constexpr CacheLayout kLayout{
    .bits = 8, .block = 0, .block_scale_bytes = 0, .needs_scales = true, .largest = 127.0f};

KVCAL_HD constexpr void round_trip(float* x, int64_t count, float scale) {
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < count; ++i) x[i] = nearest_even(x[i] * inverse, -128.0f, 127.0f) * scale;
}

}  // namespace kvcal::cache_formats::int8
