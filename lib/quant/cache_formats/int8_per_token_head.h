#pragma once

#include "quant/cache_formats/steps.h"

/// INT8 codes, and a float32 scale of each head and token. Source, run: vLLM 0.33
/// v1/attention/ops/triton_reshape_and_cache_flash.py `_reshape_cache_per_token_head`; reads:
/// triton_unified_attention.py, which multiplies by the scale behind the products.
namespace kvcal::cache_formats::int8_per_token_head {

inline constexpr SideLayout kSide{.bits = 8, .scale_bytes = 4};
inline constexpr CacheLayout kLayout{.k = kSide, .v = kSide};

KVCAL_HD constexpr void round_trip(const CachedHead& head) {
  const float scale = own_scale(amax_of(head.x, head.size) / 127.0f);
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < head.size; ++i)
    head.x[i] = nearest_away(head.x[i] * inverse, -128.0f, 127.0f) * scale;
}

}  // namespace kvcal::cache_formats::int8_per_token_head
