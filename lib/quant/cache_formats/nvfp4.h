#pragma once

#include "quant/cache_formats/steps.h"

/// E2M1 codes, an E4M3 scale of each 16 values, and a float32 scale a layer. Source: vLLM 0.33
/// csrc/libtorch_stable/nvfp4_kv_cache_kernels.cu with `cvt_warp_fp16_to_fp4`, read, whose
/// reciprocals are the chip's approximations; and their exact form in PyTorch, run:
/// nvfp4_emulation_utils.py `ref_nvfp4_quant`. Reads give e2m1 · (block scale · scale).
namespace kvcal::cache_formats::nvfp4 {

inline constexpr int64_t kBlock = 16;
inline constexpr SideLayout kSide{.bits = 4, .block = kBlock, .scale_bytes = 1, .multiple = kBlock};
/// ModelOpt exports amax / 448 for vLLM (unified_export_hf.py); so block scales have room for six
/// times the amax, and are never over 448 / 6 for observed values.
inline constexpr CacheLayout kLayout{
    .k = kSide, .v = kSide, .needs_scales = true, .largest = 448.0f, .holds = 448.0f * 6.0f};

/// Steps of a block's codes.
struct BlockScale {
  float step = 0.0f, inverse = 0.0f;  ///< inverse is 0 where the stored scale is
};

/// Scale with which 1 / part of a block's amax is one step.
KVCAL_HD constexpr BlockScale scale_of_block(float amax, float scale, float part) {
  const float stored = through_e4m3((1.0f / scale) * (amax * part));
  return {.step = stored * scale,
          .inverse = stored != 0.0f ? 1.0f / (stored * (1.0f / (1.0f / scale))) : 0.0f};
}

KVCAL_HD constexpr void round_block(float* x, const BlockScale& scale) {
  for (int64_t i = 0; i < kBlock; ++i) x[i] = nearest_e2m1(x[i] * scale.inverse) * scale.step;
}

KVCAL_HD constexpr void round_trip(const CachedHead& head) {
  for (float* x = head.x; x < head.x + head.size; x += kBlock)
    round_block(x, scale_of_block(amax_of(x, kBlock), head.scale, 1.0f / 6.0f));
}

}  // namespace kvcal::cache_formats::nvfp4
