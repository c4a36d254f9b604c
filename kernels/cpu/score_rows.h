#pragma once

#include <cstdint>
#include <limits>

#include "quant/half.h"

namespace kvcal::cpu {

/// Eight queries against some keys of a block, by AVX512-BF16 without AMX: scores become softmax
/// weights in registers, so that exponentials run while other products do. Query and key are each
/// the nearest bfloat16; what rounding took from the query is multiplied as bytes, at twice the
/// rate of bfloat16, with keys as bytes: its error is 2^-8 of something that is 2^-9.
struct ScoreRows {
  static constexpr int64_t kRows = 8;

  int64_t k_dim = 0;                  ///< a multiple of kTileSteps
  const BF16* q = nullptr;            ///< [kRows, k_dim]
  const int8_t* q_rest = nullptr;     ///< [kRows, k_dim]
  const float* q_scales = nullptr;    ///< [kRows], of q_rest
  const int32_t* q_sums = nullptr;    ///< [kRows], of q_rest
  const float* starts = nullptr;      ///< [kRows, 16]: added to all scores of a row
  int64_t keys = 0;                   ///< a multiple of 16
  int64_t k_stride = 0;               ///< of k and k_bytes, in words
  const uint32_t* k = nullptr;        ///< [k_dim / 2, keys]: pairs
  const uint32_t* k_bytes = nullptr;  ///< [k_dim / 4, keys]: fours, each + 128
  const float* k_scales = nullptr;    ///< [keys], of k_bytes
  float* scores = nullptr;            ///< [kRows, kTileKeys]
};

/// Whether this processor has the instructions, and none that are better.
bool weighs_in_registers();

/// Scale of a row whose bytes go from -127 to 127, from its largest magnitude. 0, and so are all
/// bytes, where the row is too small to matter, or not finite.
struct ByteScale {
  explicit ByteScale(float amax) {
    if (!(amax >= 0x1p-100f && amax <= std::numeric_limits<float>::max())) return;
    inverse = 127.0f / amax;
    scale = amax / 127.0f;
  }
  float inverse = 0.0f, scale = 0.0f;
};

/// Where a query goes.
struct RoundedQuery {
  BF16* q = nullptr;       ///< [k_dim]
  int8_t* rest = nullptr;  ///< [k_dim]
  float* scale = nullptr;  ///< of rest
  int32_t* sum = nullptr;  ///< of rest
  float* exact = nullptr;  ///< [k_dim], working memory
};
/// Rounds x [count] times factor to bfloat16, and what that took from it to bytes.
void round_query(const float* x, int64_t count, float factor, int64_t k_dim,
                 const RoundedQuery& to);

/// scores = starts + what the rests of the queries add.
void start_scores(const ScoreRows& rows);

/// Keys that each row sees, counted from the first.
struct VisibleKeys {
  const int32_t* first = nullptr;  ///< [kRows]
  const int32_t* last = nullptr;   ///< [kRows]
  int32_t origin = 0;              ///< number of the first key
};

/// Completes started scores, which it leaves as they are, and writes their weights [kRows,
/// kTileKeys] truncated to bfloat16; adds the truncated weights to sums [kRows, 16]. A key that a
/// row does not see weighs 0.
void weigh_started(const ScoreRows& rows, const VisibleKeys& seen, float* sums, BF16* weights);

/// Weights of kRows queries and the values of as many keys.
struct ValueRows {
  const BF16* weights = nullptr;  ///< [ScoreRows::kRows, kTileKeys]
  int64_t keys = 0;               ///< a multiple of 16
  const uint32_t* v = nullptr;    ///< [keys / 2, v_dim]: pairs
  int64_t v_dim = 0;              ///< a multiple of kTileColumns
  float* out = nullptr;           ///< [ScoreRows::kRows, v_dim]
};
/// out += weights · v
void add_values(const ValueRows& rows);

}  // namespace kvcal::cpu
