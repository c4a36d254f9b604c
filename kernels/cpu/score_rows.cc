#include "kernels/cpu/score_rows.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/error.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/tiled_cache.h"

namespace kvcal::cpu {

#if defined(__x86_64__)
#define KVCAL_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")))
#define KVCAL_AVX512_INLINE KVCAL_AVX512 __attribute__((always_inline)) inline

namespace {

constexpr int64_t kRows = ScoreRows::kRows;

/// The 32 bits at an address, in all lanes.
KVCAL_AVX512_INLINE __m512i repeat(const void* from) {
  int32_t bits = 0;
  __builtin_memcpy(&bits, from, sizeof bits);
  return _mm512_set1_epi32(bits);
}

/// Lanes of int32. Sums have this type, because GCC 12 copies an __m512i around its intrinsic.
using Ints = int32_t __attribute__((vector_size(64)));

/// Adds the products of four bytes of k and q.
KVCAL_AVX512_INLINE Ints add_bytes(Ints sums, __m512i k, __m512i q) {
  return reinterpret_cast<Ints>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums), k, q));
}

KVCAL_AVX512_INLINE __m512 to_floats(Ints x) {
  return _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(x));
}

/// 2^x as weight_of gives it without its own instructions: these take longer here. Beyond 2^127
/// it stays there, and NaN stays NaN: a sum tells that its reference is far below.
KVCAL_AVX512_INLINE __m512 exp2_of(__m512 x) {
  const __m512 shift = _mm512_set1_ps(kWholeAndBias);
  const __m512 clamped =
      _mm512_min_ps(_mm512_set1_ps(127.0f), _mm512_max_ps(_mm512_set1_ps(-127.0f), x));
  const __m512 shifted = _mm512_add_ps(clamped, shift);
  const __m512 f = _mm512_sub_ps(clamped, _mm512_sub_ps(shifted, shift));
  __m512 sum = _mm512_set1_ps(kPowerOfTwo[0]);
  for (const int i : {1, 2, 3}) sum = _mm512_fmadd_ps(sum, f, _mm512_set1_ps(kPowerOfTwo[i]));
  const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_mul_ps(sum, _mm512_castsi512_ps(power));
}

/// start_scores of kVectors * 16 keys from `key` on.
template <int64_t kVectors>
KVCAL_AVX512 void start_tile(const ScoreRows& rows, int64_t key) {
  Ints sums[kRows][kVectors];
  for (int64_t m = 0; m < kRows; ++m)  // 128 too much in each byte of a key
    for (int64_t i = 0; i < kVectors; ++i) sums[m][i] = Ints{} - 128 * rows.q_sums[m];
  const uint32_t* fours = rows.k_bytes + key;
  for (int64_t four = 0; four < rows.k_dim / 4; ++four, fours += rows.k_stride) {
    __m512i k[kVectors];
    for (int64_t i = 0; i < kVectors; ++i) k[i] = _mm512_loadu_si512(fours + 16 * i);
    for (int64_t m = 0; m < kRows; ++m) {
      const __m512i q = repeat(rows.q_rest + m * rows.k_dim + 4 * four);
      for (int64_t i = 0; i < kVectors; ++i) sums[m][i] = add_bytes(sums[m][i], k[i], q);
    }
  }
  for (int64_t m = 0; m < kRows; ++m) {
    const __m512 q_scale = _mm512_set1_ps(rows.q_scales[m]);
    const __m512 start = _mm512_loadu_ps(rows.starts + 16 * m);
    for (int64_t i = 0; i < kVectors; ++i) {
      const __m512 k_scale = _mm512_loadu_ps(rows.k_scales + key + 16 * i);
      const __m512 rest = _mm512_mul_ps(to_floats(sums[m][i]), k_scale);
      _mm512_storeu_ps(rows.scores + m * kTileKeys + key + 16 * i,
                       _mm512_fmadd_ps(rest, q_scale, start));
    }
  }
}

/// Lanes of the 16 keys from `key` on that a row sees.
KVCAL_AVX512_INLINE __mmask16 seen_lanes(int32_t key, int32_t first, int32_t last) {
  const __m512i index =
      _mm512_add_epi32(_mm512_set1_epi32(key),
                       _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
  return _mm512_cmple_epi32_mask(_mm512_set1_epi32(first), index) &
         _mm512_cmple_epi32_mask(index, _mm512_set1_epi32(last));
}

/// The power of two of a score; adds it, truncated to bfloat16, to a sum.
KVCAL_AVX512_INLINE __m512i weigh(__m512 score, __m512& sum) {
  const __m512i kept = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u));
  const __m512i weight = _mm512_castps_si512(exp2_of(score));
  sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_and_si512(weight, kept)));
  return weight;
}

/// Weights of a row's scores, truncated, and their sums.
template <int64_t kVectors>
KVCAL_AVX512_INLINE void weigh_row(const __m512* scores, float* sums, BF16* weights) {
  __m512 sum = _mm512_loadu_ps(sums);
  const __m512i low = weigh(scores[0], sum);
  if constexpr (kVectors == 1) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(low, 16)));
  } else {
    const __m512i odd =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    _mm512_storeu_si512(weights, _mm512_permutex2var_epi16(low, odd, weigh(scores[1], sum)));
  }
  _mm512_storeu_ps(sums, sum);
}

/// Adds products of pairs: k or v [pairs, stride], q or weights of kRows rows `row` elements apart.
template <int64_t kVectors>
KVCAL_AVX512_INLINE void add_pairs(int64_t pairs, const BF16* x, int64_t row, const uint32_t* y,
                                   int64_t stride, __m512 (&sums)[kRows][kVectors]) {
  for (int64_t pair = 0; pair < pairs; ++pair, y += stride) {
    __m512bh columns[kVectors];
    for (int64_t i = 0; i < kVectors; ++i)
      columns[i] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(y + 16 * i));
    for (int64_t m = 0; m < kRows; ++m) {
      const auto both = reinterpret_cast<__m512bh>(repeat(x + m * row + 2 * pair));
      for (int64_t i = 0; i < kVectors; ++i)
        sums[m][i] = _mm512_dpbf16_ps(sums[m][i], both, columns[i]);
    }
  }
}

/// weigh_started of kVectors * 16 keys from `key` on.
template <int64_t kVectors, bool kHides>
KVCAL_AVX512 void weigh_tile(const ScoreRows& rows, int64_t key, const VisibleKeys& seen,
                             float* sums, BF16* weights) {
  __m512 scores[kRows][kVectors];
  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t i = 0; i < kVectors; ++i)
      scores[m][i] = _mm512_loadu_ps(rows.scores + m * kTileKeys + key + 16 * i);
  add_pairs(rows.k_dim / 2, rows.q, rows.k_dim, rows.k + key, rows.k_stride, scores);
  for (int64_t m = 0; m < kRows; ++m) {
    if constexpr (kHides) {
      const __m512 hidden = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
      for (int64_t i = 0; i < kVectors; ++i)
        scores[m][i] =
            _mm512_mask_mov_ps(hidden,
                               seen_lanes(seen.origin + static_cast<int32_t>(key + 16 * i),
                                          seen.first[m], seen.last[m]),
                               scores[m][i]);
    }
    weigh_row<kVectors>(scores[m], sums + 16 * m, weights + m * kTileKeys + key);
  }
}

}  // namespace

bool weighs_in_registers() {
  return tile_instructions() == TileInstructions::kAvx512Bf16 &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

KVCAL_AVX512 void round_query(const float* x, int64_t count, float factor, int64_t k_dim,
                              const RoundedQuery& to) {
  const __m512 factors = _mm512_set1_ps(factor);
  __m512i largest = _mm512_setzero_si512();
  for (int64_t d = 0; d < k_dim; d += 16) {
    const auto left = static_cast<unsigned>(std::clamp<int64_t>(count - d, 0, 16));
    const auto inside = static_cast<__mmask16>((1u << left) - 1);
    const __m512 value = _mm512_mul_ps(factors, _mm512_maskz_loadu_ps(inside, x + d));
    const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.q + d), rounded);
    const __m512i back = _mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16);
    const __m512 rest = _mm512_sub_ps(value, _mm512_castsi512_ps(back));
    _mm512_storeu_ps(to.exact + d, rest);
    const __m512i magnitude =
        _mm512_and_si512(_mm512_castps_si512(rest), _mm512_set1_epi32(0x7fffffff));
    largest = _mm512_max_epi32(largest, magnitude);
  }
  const ByteScale bytes(std::bit_cast<float>(_mm512_reduce_max_epi32(largest)));
  const __m512 inverse = _mm512_set1_ps(bytes.inverse);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t d = 0; d < k_dim; d += 16) {
    const __m512i nearest =
        _mm512_cvtps_epi32(_mm512_mul_ps(inverse, _mm512_loadu_ps(to.exact + d)));
    sum = _mm512_add_epi32(sum, nearest);
    _mm512_mask_cvtepi32_storeu_epi8(to.rest + d, 0xffff, nearest);
  }
  *to.scale = bytes.scale;
  *to.sum = _mm512_reduce_add_epi32(sum);
}

void start_scores(const ScoreRows& rows) {
  int64_t key = 0;
  for (; key + 32 <= rows.keys; key += 32) start_tile<2>(rows, key);
  if (key < rows.keys) start_tile<1>(rows, key);
}

void weigh_started(const ScoreRows& rows, const VisibleKeys& seen, float* sums, BF16* weights) {
  const int32_t last_first = *std::max_element(seen.first, seen.first + kRows);
  const int32_t first_last = *std::min_element(seen.last, seen.last + kRows);
  const auto sees_all = [&](int64_t begin, int64_t end) {
    return seen.origin + begin >= last_first && seen.origin + end - 1 <= first_last;
  };
  int64_t key = 0;
  for (; key + 32 <= rows.keys; key += 32)
    sees_all(key, key + 32) ? weigh_tile<2, false>(rows, key, seen, sums, weights)
                            : weigh_tile<2, true>(rows, key, seen, sums, weights);
  if (key < rows.keys) weigh_tile<1, true>(rows, key, seen, sums, weights);
}

KVCAL_AVX512 void add_values(const ValueRows& rows) {
  for (int64_t column = 0; column < rows.v_dim; column += 32) {
    float* out = rows.out + column;
    __m512 sums[kRows][2];
    for (int64_t m = 0; m < kRows; ++m)
      for (int64_t i = 0; i < 2; ++i) sums[m][i] = _mm512_loadu_ps(out + m * rows.v_dim + 16 * i);
    add_pairs(rows.keys / 2, rows.weights, kTileKeys, rows.v + column, rows.v_dim, sums);
    for (int64_t m = 0; m < kRows; ++m)
      for (int64_t i = 0; i < 2; ++i) _mm512_storeu_ps(out + m * rows.v_dim + 16 * i, sums[m][i]);
  }
}

#else
bool weighs_in_registers() {
  return false;
}
void round_query(const float*, int64_t, float, int64_t, const RoundedQuery&) {
  KVCAL_CHECK(weighs_in_registers());
}
void add_values(const ValueRows&) {
  KVCAL_CHECK(weighs_in_registers());
}
void start_scores(const ScoreRows&) {
  KVCAL_CHECK(weighs_in_registers());
}
void weigh_started(const ScoreRows&, const VisibleKeys&, float*, BF16*) {
  KVCAL_CHECK(weighs_in_registers());
}
#endif

}  // namespace kvcal::cpu
