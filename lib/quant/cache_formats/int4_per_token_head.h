#pragma once

#include "quant/cache_formats/layout.h"
#include "quant/cache_formats/rounding.h"

/// 4-bit codes of a rotated head with a zero point, and a float32 scale of each head and token,
/// whose last four bits hold the zero point. Source, run: vLLM 0.32
/// v1/attention/ops/int4_per_token_head.py `single_rht`, `_reshape_cache_int4_kernel`; reads:
/// `_attn_packed`, whose products with rotated queries and rotation of the output equal turning K
/// and V back, but for the order of float32 sums.
namespace kvcal::cache_formats::int4_per_token_head {

inline constexpr CacheLayout kLayout{.bits = 4, .block = 0, .block_scale_bytes = 4, .multiple = 2};
inline constexpr float kLeastScale = 1e-6f;

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
  const float made = (most - least) / 15.0f;
  const float scale = made > kLeastScale ? made : kLeastScale;
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
