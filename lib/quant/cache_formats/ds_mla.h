#pragma once

#include "quant/cache_formats/steps.h"

/// Caches of a latent (MLA) with its rotated key beside it, for sparse attention. Source, run:
/// vLLM 0.33 models/deepseek_v32/common/kernels.py `_fused_norm_rope_kernel`. Reads give
/// code · scale, which bfloat16 holds exactly.
namespace kvcal::cache_formats {

inline constexpr int64_t kLatent = 512, kRotatedKey = 64;

/// E4M3 codes of the latent and a power of two of each 128 values, as float32; the rotated key in
/// bfloat16.
namespace fp8_ds_mla {

inline constexpr int64_t kBlock = 128;
inline constexpr CacheLayout kLayout{
    .k = {.bits = 8, .block = kBlock, .scale_bytes = 4, .multiple = kBlock},
    .v = {.bits = 16},
    .latent = kLatent,
    .latent_key = kRotatedKey};

KVCAL_HD inline void round_trip(const CachedHead& head) {
  if (head.is_value) {
    for (int64_t i = 0; i < head.size; ++i) head.x[i] = to_float(to_bf16(head.x[i]));
    return;
  }
  for (float* x = head.x; x < head.x + head.size; x += kBlock) {
    const float ratio = amax_of(x, kBlock) * (1.0f / 448.0f);
    const float exponent = ::ceilf(log2_of(ratio > 1e-4f ? ratio : 1e-4f));
    const float scale = power_of_two(limited(exponent + 127.0f, 0.0f, 254.0f));
    for (int64_t i = 0; i < kBlock; ++i) x[i] = through_e4m3(x[i] / scale) * scale;
  }
}

}  // namespace fp8_ds_mla

/// E2M1 codes of the latent and an E4M3 scale of each 16 values; the rotated key in E4M3 without a
/// scale.
namespace nvfp4_ds_mla {

inline constexpr int64_t kBlock = 16;
inline constexpr CacheLayout kLayout{
    .k = {.bits = 4, .block = kBlock, .scale_bytes = 1, .multiple = kBlock},
    .v = {.bits = 8},
    .latent = kLatent,
    .latent_key = kRotatedKey};

KVCAL_HD constexpr void round_trip(const CachedHead& head) {
  if (head.is_value) {
    for (int64_t i = 0; i < head.size; ++i) head.x[i] = through_e4m3(head.x[i]);
    return;
  }
  for (float* x = head.x; x < head.x + head.size; x += kBlock) {
    const float wanted = amax_of(x, kBlock) * (1.0f / 6.0f);
    const float scale = through_e4m3(wanted > 0x1p-9f ? wanted : 0x1p-9f);
    const float inverse = 1.0f / scale;
    for (int64_t i = 0; i < kBlock; ++i) x[i] = nearest_e2m1(x[i] * inverse) * scale;
  }
}

}  // namespace nvfp4_ds_mla

}  // namespace kvcal::cache_formats
