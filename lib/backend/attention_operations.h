#pragma once

#include <cstdint>
#include <span>

#include "backend/operations.h"

namespace kvcal {

/// Chooses keys for sparse attention. Key s has for query t the score sum over heads h of
/// weights(t, h) · max(0, q(t, h) · k(s)). Of the keys up to its own position, a query selects the
/// topk with the largest scores; of equal scores that of the earlier key comes first, and NaN is
/// the largest. Words behind a query's own position become zero. Source: transformers 5.23,
/// models/deepseek_v32 `DeepseekV32Indexer`, without its positive factors.
/// With blocks, each row of k stands for so many keys: a query chooses among the blocks that end at
/// its position or before, and selects all keys of the topk best and those behind the last such
/// block. Source: transformers 5.24, models/qwen4_exp `Qwen4ExpTextQSAIndexer`.
struct SelectKeysArgs {
  const float* q = nullptr;           ///< [q rows, heads, head_dim]
  const float* weights = nullptr;     ///< [q rows, heads]; null: all are 1
  const float* k = nullptr;           ///< [kv rows, head_dim]
  std::span<const Segment> segments;  ///< host; kv_begin names a row of k, kv_count counts keys
  int64_t heads = 0, head_dim = 0;
  int64_t topk = 0;         ///< rows of k
  int64_t block = 1;        ///< keys that a row of k stands for
  uint32_t* out = nullptr;  ///< [q rows, row_words], as KeySelection::words
  int64_t row_words = 0;
};

/// Consecutive keys that a query sees, at least one.
struct KeySpan {
  int64_t begin = 0, end = 0;
};

/// Attention of a few queries of one sequence, in float32, which also gives its softmax weights.
struct AttentionWeightsArgs {
  const float* q = nullptr;       ///< [queries, heads, head_dim]
  const float* k = nullptr;       ///< [keys, kv_heads, head_dim]
  const float* v = nullptr;       ///< [keys, kv_heads, v_head_dim]
  std::span<const KeySpan> seen;  ///< host, [queries]
  int64_t heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0;
  float softmax_scale = 1.0f;
  float softcap = 0.0f;          ///< as AttentionArgs has it
  const float* sinks = nullptr;  ///< [heads], as AttentionArgs has them, or null
  /// [heads], as AttentionArgs has them, or null; a query's own key is the last that it sees.
  const float* slopes = nullptr;
  /// As AttentionArgs has it; the last key that a query sees is its own.
  RelativeLogits relative = {};
  int64_t weights_stride = 0;
  /// [queries, heads, weights_stride]: natural logarithm of the weight of key seen.begin + i, then
  /// that of the sink, if any. What follows is not written.
  float* log_weights = nullptr;
  float* out = nullptr;  ///< [queries, heads, v_head_dim]
};

}  // namespace kvcal
