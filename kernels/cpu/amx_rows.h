#pragma once

#include <cstdint>

#include "quant/half.h"

namespace kvcal::cpu {

/// Attention's steps for 32 queries by AMX: scores of 32 keys are products of tiles, and while the
/// tile unit computes the next ones, vector instructions turn the last ones into softmax weights.
/// Every operand is a row of tiles of 1 KiB, 16 rows of 64 bytes, because tiles whose rows lie
/// apart meet in few sets of the level 1 cache.
///
/// A score is a fixed-point number of kAmxUnit a power of two, plus kAmxBias: its upper byte is the
/// exponent of the weight as float32 and bfloat16 store it, its lower byte the fraction, and 32 of
/// them in a vector become weights by 16-bit arithmetic. Weights are within 0.54 % (0.18 % root
/// mean square), a factor common to all aside; truncation of exact weights gives 0.48 % (0.17 %).
constexpr int64_t kAmxRows = 32, kAmxKeys = 32;
constexpr float kAmxUnit = 256.0f, kAmxBias = 127.0f * kAmxUnit;

/// Whether this processor has the instructions.
bool weighs_between_tiles();

/// Column in which a row's score of a key of kAmxKeys lies: packing two vectors to 16 bits restores
/// the order of keys.
constexpr int64_t amx_column(int64_t key) {
  return key % 4 + key / 8 * 4 + (key / 4 % 2 != 0 ? 16 : 0);
}

/// scores = starts + (q + its rests) · k, for kAmxRows queries and kAmxKeys keys.
struct AmxScores {
  int64_t steps = 0;              ///< of 32 dimensions
  const BF16* q = nullptr;        ///< [2 halves of the queries][steps][query, rest][16, 32]
  const uint32_t* k = nullptr;    ///< [steps][2 halves of the columns][16 pairs, 16]
  const float* starts = nullptr;  ///< [kAmxRows, 16]
  float* scores = nullptr;        ///< [2 halves of the queries][2 of the columns][16, 16]
};

/// Scores that become weights.
struct AmxWeights {
  const float* scores = nullptr;
  const uint32_t* seen = nullptr;  ///< [kAmxRows] bits of the keys that a query sees; null: all
  const float* before = nullptr;   ///< [kAmxRows, 16]: sums so far
  float* sums = nullptr;           ///< [kAmxRows, 16]: sums with these; may be before
  BF16* weights = nullptr;         ///< [2 halves of the queries][16, 32], `half` elements apart
  int64_t half = 0;
};

/// Computes scores, and between their products weights of other ones (null: none).
void score_and_weigh(const AmxScores& scores, const AmxWeights* weights);
void weigh(const AmxWeights& weights);

/// out += weights · v
struct AmxValues {
  int64_t chunks = 0;             ///< of kAmxKeys keys
  const BF16* weights = nullptr;  ///< [2 halves of the queries][chunks][16, 32]
  int64_t half = 0;               ///< elements from one half to the other
  int64_t columns = 0;            ///< of 32 dimensions
  const uint32_t* v = nullptr;    ///< [columns][chunks][2 halves][16 pairs, 16]
  int64_t column = 0;             ///< pairs from one column of v to the next
  float* out = nullptr;           ///< [columns][2 halves of the queries][2 halves][16, 16]
};
void add_values(const AmxValues& values);

/// Rows, as bits, whose sums are beyond 2^60 or not a number, and those with sums beyond 2^-60.
struct SumRanges {
  uint32_t far = 0, seen = 0;
};
SumRanges ranges_of(const float* sums);

/// Sum of 16 partial sums.
float sum_of_parts(const float* sums);

/// One query of AmxWeights again, against `chunks` chunks of keys.
struct AmxRow {
  int64_t row = 0, chunks = 0;
  float* scores = nullptr;         ///< of AmxWeights, one chunk after the other
  const uint32_t* seen = nullptr;  ///< [chunks]
};
/// Largest score that the query sees; -infinity if it sees none, NaN if one is not finite.
float largest_of(const AmxRow& row);
/// Adds to the sums [16] the weights of its scores less `by`, and writes them.
void weigh_row(const AmxRow& row, float by, const AmxWeights& weights);

}  // namespace kvcal::cpu
