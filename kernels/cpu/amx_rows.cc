#include "kernels/cpu/amx_rows.h"

#include <limits>

#include "core/error.h"
#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/tile_product.h"

namespace kvcal::cpu {

#if defined(__x86_64__)
#define KVCAL_AMX \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,bmi2,amx-tile,amx-bf16")))
#define KVCAL_AMX_INLINE KVCAL_AMX __attribute__((always_inline)) inline

namespace {

constexpr int64_t kRowsInTile = 16, kHalves = 512;  // elements of bfloat16 in a tile
constexpr int64_t kFloats = 256, kWords = 256;      // in a tile

/// Constants of weights. GCC must not see them: it would replace products by shifts and additions.
struct Constants {
  KVCAL_AMX_INLINE Constants()
      : most(_mm512_set1_ps(65535.0f)),
        fraction(_mm512_set1_epi16(0xff)),
        base(_mm512_set1_epi16(77)),
        rise(_mm512_set1_epi16(5760)),
        ones(_mm512_set1_epi16(0x3f80)) {
    asm volatile("" : "+v"(fraction), "+v"(base), "+v"(rise));
  }
  __m512 most;
  __m512i fraction, base, rise, ones;
};

/// Weights of 32 scores, in the order of keys. Of a fraction f, 2^f is about 1 + f - f · (1 - f) ·
/// k with a k that rises from 77 / 256 to 99 / 256. What is too large, or not a number, becomes a
/// bfloat16 that is no number.
KVCAL_AMX_INLINE __m512i weights_of(__m512 first, __m512 second, const Constants& c) {
  // The second operand is what min gives for NaN.
  const __m512i low = _mm512_cvtps_epi32(_mm512_min_ps(first, c.most));
  const __m512i high = _mm512_cvtps_epi32(_mm512_min_ps(second, c.most));
  const __m512i fixed = _mm512_packus_epi32(low, high);
  const __m512i f = _mm512_and_si512(fixed, c.fraction);
  const __m512i bow = _mm512_mullo_epi16(f, _mm512_andnot_si512(fixed, c.fraction));
  const __m512i k = _mm512_add_epi16(c.base, _mm512_mulhi_epu16(f, c.rise));
  return _mm512_srli_epi16(_mm512_sub_epi16(fixed, _mm512_mulhi_epu16(bow, k)), 1);
}

KVCAL_AMX_INLINE __m512 add_weights(__m512 sum, __m512i weights, const Constants& c) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(weights),
                          reinterpret_cast<__m512bh>(c.ones));
}

/// The rows of AmxWeights one after the other, in variables that stay in registers.
template <bool kHides>
class RowWeigher {
 public:
  KVCAL_AMX_INLINE explicit RowWeigher(const AmxWeights& w)
      : scores_(w.scores),
        seen_(w.seen),
        before_(w.before),
        sums_(w.sums),
        weights_(w.weights),
        to_next_half_(w.half - kHalves) {}

  /// Weighs the rows up to `end`, all in one half.
  KVCAL_AMX_INLINE void weigh_to(int64_t end) {
    for (; row_ < end; ++row_) {
      __m512i weights =
          weights_of(_mm512_loadu_ps(scores_), _mm512_loadu_ps(scores_ + kFloats), constants_);
      if constexpr (kHides) weights = _mm512_maskz_mov_epi16(seen_[row_], weights);
      _mm512_storeu_si512(weights_, weights);
      _mm512_storeu_ps(sums_, add_weights(_mm512_loadu_ps(before_), weights, constants_));
      scores_ += 16;
      weights_ += 32;
      before_ += 16;
      sums_ += 16;
    }
  }
  KVCAL_AMX_INLINE void start_half() {
    scores_ += kFloats;
    weights_ += to_next_half_;
  }

 private:
  const Constants constants_;
  const float* scores_;
  const uint32_t* seen_;
  const float* before_;
  float* sums_;
  BF16* weights_;
  int64_t to_next_half_, row_ = 0;
};

#define KVCAL_LOAD(tile, from) _tile_loadd(tile, from, 64)
#define KVCAL_STORE(tile, to) _tile_stored(tile, to, 64)

/// One step of 16 queries, both of their parts, with rows of weights behind each. Two sums and not
/// four, so that the next 16 queries' products run while these are stored.
#define KVCAL_SCORE_STEP(first, second, done)                                       \
  KVCAL_LOAD(6, k);                                                                 \
  KVCAL_LOAD(4, q);                                                                 \
  _tile_dpbf16ps(first, 4, 6);                                                      \
  KVCAL_LOAD(7, k + kWords);                                                        \
  _tile_dpbf16ps(second, 4, 7);                                                     \
  if constexpr (kWeighs) weigher.weigh_to((done) + ((2 * step + 1) * share >> 16)); \
  KVCAL_LOAD(5, q + kHalves);                                                       \
  _tile_dpbf16ps(first, 5, 6);                                                      \
  _tile_dpbf16ps(second, 5, 7);                                                     \
  if ((done) > 0 && step == 0) {                                                    \
    KVCAL_STORE(0, scores);                                                         \
    KVCAL_STORE(1, scores + kFloats);                                               \
  }                                                                                 \
  if constexpr (kWeighs) weigher.weigh_to((done) + ((2 * step + 2) * share >> 16));

template <bool kWeighs, bool kHides>
KVCAL_AMX void score_tiles(const AmxScores& s, const AmxWeights& w) {
  RowWeigher<kHides> weigher(w);
  const int64_t steps = s.steps;
  const int64_t share =
      ((8 << 16) + steps - 1) / steps;  // rows for each part of a step, times 2^16
  const uint32_t* k = s.k;
  const BF16* q = s.q;
  float* scores = s.scores;
  KVCAL_LOAD(0, s.starts);
  KVCAL_LOAD(1, s.starts);
  for (int64_t step = 0; step < steps; ++step, q += 2 * kHalves, k += 2 * kWords) {
    KVCAL_SCORE_STEP(0, 1, 0)
  }
  if constexpr (kWeighs) weigher.start_half();
  KVCAL_LOAD(2, s.starts + kFloats);
  KVCAL_LOAD(3, s.starts + kFloats);
  k = s.k;
  for (int64_t step = 0; step < steps; ++step, q += 2 * kHalves, k += 2 * kWords) {
    KVCAL_SCORE_STEP(2, 3, 16)
  }
  KVCAL_STORE(2, scores + 2 * kFloats);
  KVCAL_STORE(3, scores + 3 * kFloats);
}

/// Sums of 16 queries and 32 dimensions.
#define KVCAL_VALUE_TILES(first, second, row)                            \
  KVCAL_LOAD(first, out + (row)*2 * kFloats);                            \
  KVCAL_LOAD(second, out + ((row)*2 + 1) * kFloats);                     \
  for (int64_t chunk = 0; chunk < values.chunks; ++chunk) {              \
    KVCAL_LOAD(6, v + chunk * 2 * kWords);                               \
    KVCAL_LOAD(4, values.weights + (row)*values.half + chunk * kHalves); \
    _tile_dpbf16ps(first, 4, 6);                                         \
    KVCAL_LOAD(7, v + (chunk * 2 + 1) * kWords);                         \
    _tile_dpbf16ps(second, 4, 7);                                        \
  }

}  // namespace

bool weighs_between_tiles() {
  return tile_instructions() == TileInstructions::kAmxBf16 && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("bmi2");
}

void score_and_weigh(const AmxScores& scores, const AmxWeights* weights) {
  if (!weights) return score_tiles<false, false>(scores, {});
  weights->seen ? score_tiles<true, true>(scores, *weights)
                : score_tiles<true, false>(scores, *weights);
}

template <bool kHides>
KVCAL_AMX void weigh_alone(const AmxWeights& weights) {
  RowWeigher<kHides> weigher(weights);
  weigher.weigh_to(16);
  weigher.start_half();
  weigher.weigh_to(32);
}
void weigh(const AmxWeights& weights) {
  weights.seen ? weigh_alone<true>(weights) : weigh_alone<false>(weights);
}

KVCAL_AMX void add_values(const AmxValues& values) {
  asm volatile("" ::: "memory");  // GCC does not know that _tile_loadd reads memory
  float *out = values.out, *before = nullptr;
  const uint32_t* v = values.v;
  for (int64_t column = 0; column < values.columns;
       ++column, out += 4 * kFloats, v += values.column) {
    KVCAL_VALUE_TILES(0, 1, 0)
    if (before) {
      KVCAL_STORE(2, before);
      KVCAL_STORE(3, before + kFloats);
    }
    KVCAL_VALUE_TILES(2, 3, 1)
    KVCAL_STORE(0, out);
    KVCAL_STORE(1, out + kFloats);
    before = out + 2 * kFloats;
  }
  KVCAL_STORE(2, before);
  KVCAL_STORE(3, before + kFloats);
}

KVCAL_AMX float sum_of_parts(const float* sums) {
  return _mm512_reduce_add_ps(_mm512_loadu_ps(sums));
}

KVCAL_AMX SumRanges ranges_of(const float* sums) {
  SumRanges ranges;
  for (int64_t row = 0; row < kAmxRows; ++row) {
    const __m512 sum = _mm512_loadu_ps(sums + row * 16);
    const uint32_t bit = uint32_t{1} << row;
    if (_mm512_cmp_ps_mask(sum, _mm512_set1_ps(0x1p60f), _CMP_NLE_UQ)) ranges.far |= bit;
    if (_mm512_cmp_ps_mask(sum, _mm512_set1_ps(0x1p-60f), _CMP_NLE_UQ)) ranges.seen |= bit;
  }
  return ranges;
}

namespace {

KVCAL_AMX_INLINE const float* scores_of(const AmxRow& row, int64_t chunk) {
  return row.scores + chunk * 4 * kFloats + row.row / kRowsInTile * 2 * kFloats +
         row.row % kRowsInTile * 16;
}

}  // namespace

KVCAL_AMX float largest_of(const AmxRow& row) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  __m512 largest = _mm512_set1_ps(-kInfinity);
  for (int64_t chunk = 0; chunk < row.chunks; ++chunk) {
    const float* scores = scores_of(row, chunk);
    for (const auto& [keys, at] :
         {std::pair{0x0f0f0f0fu, scores}, {0xf0f0f0f0u, scores + kFloats}}) {
      const auto seen = static_cast<__mmask16>(_pext_u32(row.seen[chunk], keys));
      const __m512 score = _mm512_loadu_ps(at);
      if (_mm512_mask_cmp_ps_mask(seen, score, _mm512_set1_ps(kInfinity), _CMP_NLT_UQ))
        return std::numeric_limits<float>::quiet_NaN();
      largest = _mm512_mask_max_ps(largest, seen, largest, score);
    }
  }
  return _mm512_reduce_max_ps(largest);
}

KVCAL_AMX void weigh_row(const AmxRow& row, float by, const AmxWeights& w) {
  const Constants c;
  const __m512 less = _mm512_set1_ps(by);
  __m512 sum = _mm512_loadu_ps(w.before + row.row * 16);
  BF16* out = w.weights + row.row / kRowsInTile * w.half + row.row % kRowsInTile * 32;
  for (int64_t chunk = 0; chunk < row.chunks; ++chunk, out += kHalves) {
    const float* scores = scores_of(row, chunk);
    __m512i weights = weights_of(_mm512_sub_ps(_mm512_loadu_ps(scores), less),
                                 _mm512_sub_ps(_mm512_loadu_ps(scores + kFloats), less), c);
    weights = _mm512_maskz_mov_epi16(row.seen[chunk], weights);
    _mm512_storeu_si512(out, weights);
    sum = add_weights(sum, weights, c);
  }
  _mm512_storeu_ps(w.sums + row.row * 16, sum);
}

#else
bool weighs_between_tiles() {
  return false;
}
void score_and_weigh(const AmxScores&, const AmxWeights*) {
  KVCAL_CHECK(weighs_between_tiles());
}
void weigh(const AmxWeights&) {
  KVCAL_CHECK(weighs_between_tiles());
}
void add_values(const AmxValues&) {
  KVCAL_CHECK(weighs_between_tiles());
}
float sum_of_parts(const float*) {
  KVCAL_CHECK(weighs_between_tiles());
  return 0.0f;
}
SumRanges ranges_of(const float*) {
  KVCAL_CHECK(weighs_between_tiles());
  return {};
}
float largest_of(const AmxRow&) {
  KVCAL_CHECK(weighs_between_tiles());
  return 0.0f;
}
void weigh_row(const AmxRow&, float, const AmxWeights&) {
  KVCAL_CHECK(weighs_between_tiles());
}
#endif

}  // namespace kvcal::cpu
