#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quant/fp8.h"

namespace kvcal {

/// Storage of K or V of one head and token, in an engine's cache.
struct CacheLayout {
  int bits = 8;               ///< of a code
  int64_t block = 0;          ///< values that share a stored scale; 0: all of a head
  int block_scale_bytes = 0;  ///< of a stored scale; 0: none is stored
  bool needs_scales = false;  ///< a calibrated scale a layer; else tokens make their own
  /// Scale = amax / largest, where it needs scales.
  float largest = 0.0f;
  /// Divides head_dim.
  int64_t multiple = 1;
};

/// Bytes of K or V of one head and token.
constexpr int64_t bytes_of_head(const CacheLayout& layout, int64_t head_dim) {
  const int64_t scales = layout.block_scale_bytes == 0 ? 0
                         : layout.block == 0           ? 1
                                                       : head_dim / layout.block;
  return head_dim * layout.bits / 8 + scales * layout.block_scale_bytes;
}

}  // namespace kvcal

/// Formats of KV caches whose codes kvcal does not keep, a namespace each: what an engine reads of
/// what it stored. Plain float32 arithmetic, with equal results on host and device. First the steps
/// that they share.
namespace kvcal::cache_formats {

KVCAL_HD constexpr float magnitude_of(float x) {
  return float_of(bits_of(x) & 0x7fffffffu);
}
/// NaN stays.
KVCAL_HD constexpr float limited(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}
/// Largest magnitude of x [count]; NaN is passed over.
KVCAL_HD constexpr float amax_of(const float* x, int64_t count) {
  float amax = 0.0f;
  for (int64_t i = 0; i < count; ++i)
    if (const float magnitude = magnitude_of(x[i]); magnitude > amax) amax = magnitude;
  return amax;
}
/// The integer of [low, high] nearest to x, halves away from zero. NaN stays.
KVCAL_HD constexpr float nearest_away(float x, float low, float high) {
  if (x != x) return x;
  const float moved = limited(x >= 0.0f ? x + 0.5f : x - 0.5f, low, high);
  return static_cast<float>(static_cast<int32_t>(moved));
}
/// Scale that a token makes for its head.
KVCAL_HD constexpr float own_scale(float made) {
  return made > 1e-6f ? made : 1e-6f;
}
/// The integer of [low, high] nearest to x, halves to even; both within 2^22. NaN stays.
KVCAL_HD constexpr float nearest_even(float x, float low, float high) {
  constexpr float kAnchor = 0x1.8p23f;  // the adder rounds: one step is worth 1 here
  const float inside = limited(x, low, high);
  return (inside + kAnchor) - kAnchor;
}

}  // namespace kvcal::cache_formats

/// E4M3 codes, and a float32 scale of each head and token. Source, run: vLLM 0.32
/// v1/attention/ops/triton_reshape_and_cache_flash.py `_reshape_cache_per_token_head`; reads:
/// triton_unified_attention.py, which multiplies by the scale behind the products.
namespace kvcal::cache_formats::fp8_per_token_head {

inline constexpr CacheLayout kLayout{.bits = 8, .block = 0, .block_scale_bytes = 4};

KVCAL_HD constexpr void round_trip(float* x, int64_t count, float) {
  constexpr auto kFormat = fp8::Format::kE4m3Fn;
  const float scale = own_scale(amax_of(x, count) / 448.0f);
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < count; ++i)
    x[i] = fp8::decode(fp8::encode(x[i] * inverse, kFormat), kFormat) * scale;
}

}  // namespace kvcal::cache_formats::fp8_per_token_head

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

/// INT8 codes, and a float32 scale of each head and token. Source, run: vLLM 0.32
/// v1/attention/ops/triton_reshape_and_cache_flash.py `_reshape_cache_per_token_head`; reads:
/// triton_unified_attention.py, which multiplies by the scale behind the products.
namespace kvcal::cache_formats::int8_per_token_head {

inline constexpr CacheLayout kLayout{.bits = 8, .block = 0, .block_scale_bytes = 4};

KVCAL_HD constexpr void round_trip(float* x, int64_t count, float) {
  const float scale = own_scale(amax_of(x, count) / 127.0f);
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < count; ++i) x[i] = nearest_away(x[i] * inverse, -128.0f, 127.0f) * scale;
}

}  // namespace kvcal::cache_formats::int8_per_token_head

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

/// 4-bit codes of a rotated head with a zero point, and a float32 scale of each head and token,
/// whose last four bits hold the zero point. Source, run: vLLM 0.32
/// v1/attention/ops/int4_per_token_head.py `single_rht`, `_reshape_cache_int4_kernel`; reads:
/// `_attn_packed`, whose products with rotated queries and rotation of the output equal turning K
/// and V back, but for the order of float32 sums.
namespace kvcal::cache_formats::int4_per_token_head {

inline constexpr CacheLayout kLayout{.bits = 4, .block = 0, .block_scale_bytes = 4, .multiple = 2};

/// Signs of `_get_rht_signs`: bit i % 64 of word i / 64 is 1 where sign i is -1. torch draws them
/// with the Mersenne Twister of this seed; those of a shorter head are the first of a longer one's.
inline constexpr uint32_t kSignSeed = 0x9e3779b9u;
inline constexpr int64_t kMostSigns = 512;
struct Signs {
  uint64_t words[8] = {0x7f7fca4e9a8ca6f2u, 0x9480abc759bbc293u, 0x54503bbeb55b747eu,
                       0x05dfbc5fcdf467b7u, 0x57563834b291e3ccu, 0x67fc4ca6e46ae225u,
                       0x32d9dff1cfc78691u, 0x75625346365fdb89u};
};

/// Largest power of two that divides count: the rows of the Hadamard matrix.
KVCAL_HD constexpr int64_t rotated_together(int64_t count) {
  return count & -count;
}

/// Multiplies x [size], a power of two, by the Hadamard matrix without its norm:
/// `fast_hadamard_transform` in PyTorch.
KVCAL_HD constexpr void transform(float* x, int64_t size) {
  for (int64_t half = 1; half < size; half *= 2)
    for (int64_t first = 0; first < size; first += 2 * half)
      for (int64_t i = first; i < first + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
}

KVCAL_HD constexpr void flip_signs(float* x, int64_t size, const uint64_t* signs) {
  for (int64_t i = 0; i < size; ++i)
    if ((signs[i / 64] >> (i % 64) & 1u) != 0) x[i] = -x[i];
}

KVCAL_HD constexpr void round_trip(float* x, int64_t count, float) {
  const int64_t block = rotated_together(count);
  constexpr Signs kSigns;
  for (float* row = x; row < x + count; row += block) {
    flip_signs(row, block, kSigns.words);
    transform(row, block);
  }
  float least = x[0], most = x[0];
  for (int64_t i = 1; i < count; ++i) {
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
  }
  const float scale = own_scale((most - least) / 15.0f);
  const float zero = nearest_away(-least / scale, 0.0f, 15.0f);
  const float inverse = 1.0f / scale;
  const float stored = float_of(bits_of(scale) & ~15u);
  for (int64_t i = 0; i < count; ++i)
    x[i] = (nearest_away(x[i] * inverse + zero, 0.0f, 15.0f) - zero) * stored;
  for (float* row = x; row < x + count; row += block) {
    transform(row, block);
    flip_signs(row, block, kSigns.words);
    for (int64_t i = 0; i < block; ++i) row[i] = row[i] / static_cast<float>(block);
  }
}

}  // namespace kvcal::cache_formats::int4_per_token_head

namespace kvcal {

// clang-format off

/// Calls row(enumerator, name) for each format above. name is the engine's, and that of the
/// namespace.
#define KVCAL_CACHE_FORMATS(row)              \
  row(kFp8PerTokenHead, fp8_per_token_head)   \
  row(kMxfp8, mxfp8)                          \
  row(kInt8, int8)                            \
  row(kInt8PerTokenHead, int8_per_token_head) \
  row(kNvfp4, nvfp4)                          \
  row(kInt4PerTokenHead, int4_per_token_head)

// clang-format on

enum class CacheFormat : uint8_t {
#define KVCAL_ENUMERATOR(enumerator, name) enumerator,
  KVCAL_CACHE_FORMATS(KVCAL_ENUMERATOR)
#undef KVCAL_ENUMERATOR
};

/// x [count], a head of K after RoPE or of V, becomes what attention reads of it. scale: of the
/// head, where the format needs scales.
KVCAL_HD inline void round_trip(CacheFormat format, float* x, int64_t count, float scale) {
  switch (format) {
#define KVCAL_ROUND_TRIP(enumerator, name) \
  case CacheFormat::enumerator:            \
    return cache_formats::name::round_trip(x, count, scale);
    KVCAL_CACHE_FORMATS(KVCAL_ROUND_TRIP)
#undef KVCAL_ROUND_TRIP
  }
}

/// Name and storage of each format, in the table's order.
struct CacheFormatRow {
  std::string_view name;
  CacheLayout layout;
};
inline constexpr CacheFormatRow kCacheFormatRows[] = {
#define KVCAL_FORMAT_ROW(enumerator, name) {#name, cache_formats::name::kLayout},
    KVCAL_CACHE_FORMATS(KVCAL_FORMAT_ROW)
#undef KVCAL_FORMAT_ROW
};

constexpr const CacheLayout& layout_of(CacheFormat format) {
  return kCacheFormatRows[static_cast<size_t>(format)].layout;
}

constexpr std::string_view name_of(CacheFormat format) {
  return kCacheFormatRows[static_cast<size_t>(format)].name;
}

/// All of them, in the table's order.
inline constexpr CacheFormat kCacheFormats[] = {
#define KVCAL_ELEMENT(enumerator, name) CacheFormat::enumerator,
    KVCAL_CACHE_FORMATS(KVCAL_ELEMENT)
#undef KVCAL_ELEMENT
};

}  // namespace kvcal
