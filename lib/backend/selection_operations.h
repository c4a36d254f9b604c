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
struct SelectKeysArgs {
  const float* q = nullptr;           ///< [q rows, heads, head_dim]
  const float* weights = nullptr;     ///< [q rows, heads]
  const float* k = nullptr;           ///< [kv rows, head_dim]
  std::span<const Segment> segments;  ///< host
  int64_t heads = 0, head_dim = 0;
  int64_t topk = 0;
  uint32_t* out = nullptr;  ///< [q rows, row_words], as KeySelection::words
  int64_t row_words = 0;
};

}  // namespace kvcal
