#pragma once

#include "quant/cache_formats/hadamard.h"
#include "quant/cache_formats/steps.h"

/// 4-bit codes of a rotated head with a zero point, and a float32 scale of each head and token,
/// whose last four bits hold the zero point. Source, run: vLLM 0.33
/// v1/attention/ops/int4_per_token_head.py `single_rht`, `_reshape_cache_int4_kernel`; reads:
/// `_attn_packed`, whose products with rotated queries and rotation of the output equal turning K
/// and V back, but for the order of float32 sums.
namespace kvcal::cache_formats::int4_per_token_head {

inline constexpr SideLayout kSide{.bits = 4, .scale_bytes = 4, .multiple = 2};
inline constexpr CacheLayout kLayout{.k = kSide, .v = kSide};

/// Signs of `_get_rht_signs`.
inline constexpr uint32_t kSignSeed = 0x9e3779b9u;
inline constexpr Signs kSigns{{0x7f7fca4e9a8ca6f2u, 0x9480abc759bbc293u, 0x54503bbeb55b747eu,
                               0x05dfbc5fcdf467b7u, 0x57563834b291e3ccu, 0x67fc4ca6e46ae225u,
                               0x32d9dff1cfc78691u, 0x75625346365fdb89u}};

/// Largest power of two that divides count: the rows of the Hadamard matrix.
KVCAL_HD constexpr int64_t rotated_together(int64_t count) {
  return count & -count;
}

KVCAL_HD constexpr void round_rotated(float* x, int64_t count) {
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
}

KVCAL_HD constexpr void round_trip(const CachedHead& head) {
  const int64_t block = rotated_together(head.size);
  constexpr Signs kTaken = kSigns;  // device code takes no address of kSigns
  for (float* row = head.x; row < head.x + head.size; row += block) {
    flip_signs(row, block, kTaken);
    transform(row, block);
  }
  round_rotated(head.x, head.size);
  for (float* row = head.x; row < head.x + head.size; row += block) {
    transform(row, block);
    flip_signs(row, block, kTaken);
    for (int64_t i = 0; i < block; ++i) row[i] = row[i] / static_cast<float>(block);
  }
}

}  // namespace kvcal::cache_formats::int4_per_token_head
