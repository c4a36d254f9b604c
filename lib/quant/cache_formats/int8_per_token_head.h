#pragma once

#include "quant/cache_formats/layout.h"
#include "quant/cache_formats/rounding.h"

/// INT8 codes, and a float32 scale of each head and token. Source, run: vLLM 0.32
/// v1/attention/ops/triton_reshape_and_cache_flash.py `_reshape_cache_per_token_head`; reads:
/// triton_unified_attention.py, which multiplies by the scale behind the products.
namespace kvcal::cache_formats::int8_per_token_head {

inline constexpr CacheLayout kLayout{.bits = 8, .block = 0, .block_scale_bytes = 4};
inline constexpr float kLeastScale = 1e-6f;

KVCAL_HD constexpr void round_trip(float* x, int64_t count, float) {
  const float made = amax_of(x, count) / 127.0f;
  const float scale = made > kLeastScale ? made : kLeastScale;
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < count; ++i) x[i] = nearest_away(x[i] * inverse, -128.0f, 127.0f) * scale;
}

}  // namespace kvcal::cache_formats::int8_per_token_head
