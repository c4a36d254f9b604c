#pragma once

#include "quant/cache_formats/layout.h"
#include "quant/cache_formats/rounding.h"
#include "quant/fp8.h"

/// E2M1 codes, an E4M3 scale of each 16 values, and a float32 scale a layer. Source: vLLM 0.32
/// csrc/libtorch_stable/nvfp4_kv_cache_kernels.cu with `cvt_warp_fp16_to_fp4`, read, whose
/// reciprocals are the chip's approximations; and their exact form in PyTorch, run:
/// nvfp4_emulation_utils.py `ref_nvfp4_quant`. Reads give e2m1 · (block scale · scale).
namespace kvcal::cache_formats::nvfp4 {

inline constexpr int64_t kBlock = 16;
/// ModelOpt exports amax / 448 for vLLM (unified_export_hf.py); so block scales have room for six
/// times the amax, and are never over 448 / 6 for observed values.
inline constexpr CacheLayout kLayout{.bits = 4,
                                     .block = kBlock,
                                     .block_scale_bytes = 1,
                                     .needs_scales = true,
                                     .largest = 448.0f,
                                     .multiple = kBlock};

/// The E2M1 value nearest to x, ties to even; over 6 it is 6. NaN stays.
KVCAL_HD constexpr float nearest_e2m1(float x) {
  const float magnitude = magnitude_of(x);
  const float step = magnitude < 2.0f ? 0.5f : magnitude < 4.0f ? 1.0f : 2.0f;
  const float rounded = nearest_even(magnitude / step, 0.0f, 8.0f) * step;
  return float_of(bits_of(limited(rounded, 0.0f, 6.0f)) | (bits_of(x) & 0x80000000u));
}

KVCAL_HD constexpr void round_block(float* x, float scale) {
  constexpr auto kFormat = fp8::Format::kE4m3Fn;
  const float wanted = (1.0f / scale) * (amax_of(x, kBlock) * (1.0f / 6.0f));
  const float stored = fp8::decode(fp8::encode(wanted, kFormat), kFormat);
  const float step = stored * scale;
  const float inverse = stored != 0.0f ? 1.0f / (stored * (1.0f / (1.0f / scale))) : 0.0f;
  for (int64_t i = 0; i < kBlock; ++i) x[i] = nearest_e2m1(x[i] * inverse) * step;
}

KVCAL_HD constexpr void round_trip(float* x, int64_t count, float scale) {
  for (int64_t i = 0; i < count; i += kBlock) round_block(x + i, scale);
}

}  // namespace kvcal::cache_formats::nvfp4
