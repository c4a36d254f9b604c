#pragma once

#include "quant/cache_formats/nvfp4.h"

/// NVFP4 whose blocks take amax / 6 or amax / 4 as their scale, whichever has the smaller squared
/// error. Not compared by running with the engine's kernel, which exists in CUDA alone: vLLM 0.33
/// csrc/libtorch_stable/nvfp4_kv_cache_kernels.cu `cvt_warp_fp16_to_fp4_4over6`, read. Both
/// candidates are those of `ref_nvfp4_quant`, run.
namespace kvcal::cache_formats::nvfp4_4over6 {

inline constexpr CacheLayout kLayout = nvfp4::kLayout;

KVCAL_HD constexpr float squared_error(float x, const nvfp4::BlockScale& scale) {
  const float error = nearest_e2m1(x * scale.inverse) * scale.step - x;
  return error * error;
}
/// Of a block, in the kernel's order.
KVCAL_HD constexpr float error_of(const float* x, const nvfp4::BlockScale& scale) {
  float error = 0.0f;
  for (int64_t i = 0; i < nvfp4::kBlock; i += 2)
    error += squared_error(x[i], scale) + squared_error(x[i + 1], scale);
  return error;
}

KVCAL_HD constexpr void round_trip(const CachedHead& head) {
  for (float* x = head.x; x < head.x + head.size; x += nvfp4::kBlock) {
    const float amax = amax_of(x, nvfp4::kBlock);
    const nvfp4::BlockScale six = nvfp4::scale_of_block(amax, head.scale, 1.0f / 6.0f);
    const nvfp4::BlockScale four = nvfp4::scale_of_block(amax, head.scale, 1.0f / 4.0f);
    nvfp4::round_block(x, error_of(x, four) < error_of(x, six) ? four : six);
  }
}

}  // namespace kvcal::cache_formats::nvfp4_4over6
