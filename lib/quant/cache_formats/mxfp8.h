#pragma once

#include <cmath>

#include "quant/cache_formats/layout.h"
#include "quant/cache_formats/rounding.h"
#include "quant/fp8.h"

/// E4M3 codes, and a power of two of each 32 values. Source, run: SGLang 0.5.23
/// kernels/ops/kvcache/mxfp8_quant_store_kv.py `_mxfp8_quant_store_qkv_kernel`; reads give
/// code · 2^(stored - 127).
namespace kvcal::cache_formats::mxfp8 {

inline constexpr int64_t kBlock = 32;
inline constexpr CacheLayout kLayout{
    .bits = 8, .block = kBlock, .block_scale_bytes = 1, .multiple = kBlock};

/// 2^(stored - 127); stored is an integer of [0, 254].
KVCAL_HD constexpr float power_of_two(float stored) {
  return stored == 0.0f ? 0x1p-127f : float_of(static_cast<uint32_t>(stored) << 23);
}

KVCAL_HD inline void round_block(float* x) {
  constexpr auto kFormat = fp8::Format::kE4m3Fn;
  const float amax = amax_of(x, kBlock);
  const float ratio = (amax > 1e-30f ? amax : 1e-30f) / 448.0f;
  // float32's logarithm, rounded once, as the kernel's: close over a power of two it is an integer.
  const auto logarithm = static_cast<float>(::log2(static_cast<double>(ratio)));
  const float scale = power_of_two(limited(::ceilf(logarithm) + 127.0f, 0.0f, 254.0f));
  for (int64_t i = 0; i < kBlock; ++i)
    x[i] = fp8::decode(fp8::encode(x[i] / scale, kFormat), kFormat) * scale;
}

KVCAL_HD inline void round_trip(float* x, int64_t count, float) {
  for (int64_t i = 0; i < count; i += kBlock) round_block(x + i);
}

}  // namespace kvcal::cache_formats::mxfp8
