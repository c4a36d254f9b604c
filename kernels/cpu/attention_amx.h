#pragma once

#include <algorithm>

#include "kernels/cpu/amx_rows.h"
#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/tiled_cache.h"

namespace kvcal::cpu {

/// Queries of a task.
constexpr int64_t kAmxQueries = 128;

/// Floats of working memory.
inline int64_t amx_attention_scratch(const TiledCache& cache) {
  constexpr int64_t kScores = kAmxRows * kAmxKeys;
  return kAmxQueries * (cache.k_dim + cache.v_dim + 3 * 16) + (2 + kTileKeys / kAmxKeys) * kScores +
         kAmxRows * kTileKeys / 2 + std::max(cache.k_dim, cache.v_dim);
}

/// A task of at most kAmxQueries queries with a cache that is in tiles, within a TileSession.
void attend_by_amx(const AttentionArgs& args, const AttentionTask& task, const TiledCache& cache,
                   float* scratch);

}  // namespace kvcal::cpu
