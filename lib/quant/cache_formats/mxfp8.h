#pragma once

#include "quant/cache_formats/steps.h"

/// E4M3 codes, and a power of two of each 32 values. Source, run: SGLang 0.5.23
/// kernels/ops/kvcache/mxfp8_quant_store_kv.py `_mxfp8_quant_store_qkv_kernel`; reads give
/// code · 2^(stored - 127).
namespace kvcal::cache_formats::mxfp8 {

inline constexpr int64_t kBlock = 32;
inline constexpr SideLayout kSide{.bits = 8, .block = kBlock, .scale_bytes = 1, .multiple = kBlock};
inline constexpr CacheLayout kLayout{.k = kSide, .v = kSide};

KVCAL_HD inline void round_block(float* x) {
  const float amax = amax_of(x, kBlock);
  const float ratio = (amax > 1e-30f ? amax : 1e-30f) / 448.0f;
  const float scale = power_of_two(limited(::ceilf(log2_of(ratio)) + 127.0f, 0.0f, 254.0f));
  for (int64_t i = 0; i < kBlock; ++i) x[i] = through_e4m3(x[i] / scale) * scale;
}

KVCAL_HD inline void round_trip(const CachedHead& head) {
  for (int64_t i = 0; i < head.size; i += kBlock) round_block(head.x + i);
}

}  // namespace kvcal::cache_formats::mxfp8
