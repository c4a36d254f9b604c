#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "kernels/cpu/amx_rows.h"
#include "kernels/cpu/tiled_cache.h"

namespace kvcal::cpu {

/// Queries of one task: consecutive tokens times the heads that share a KV head.
inline constexpr int64_t kQueries = 48;

/// Queries processed together: consecutive tokens times the heads that share a KV head.
struct AttentionTask {
  const Segment* segment = nullptr;
  int64_t segment_index = 0;
  int64_t kv_head = 0;
  int64_t first_token = 0, tokens = 0;  ///< within the segment
  int64_t first_head = 0, heads = 0;    ///< tokens * heads <= the limit
};

/// Divides the work into tasks of at most so many queries, segment by segment and head by head, so
/// that a head's keys and values stay in cache; the longest task first.
inline std::vector<AttentionTask> cut_attention(const AttentionArgs& args, int64_t queries) {
  const int64_t group = args.heads / args.kv_heads;
  const int64_t heads = std::min(group, queries), tokens = queries / heads;
  std::vector<AttentionTask> tasks;
  for (size_t index = 0; index < args.segments.size(); ++index) {
    const Segment& segment = args.segments[index];
    for (int64_t head = 0; head < args.heads;) {
      const int64_t kv_head = head / group;
      const int64_t here = std::min(heads, (kv_head + 1) * group - head);
      for (int64_t block = (segment.q_count + tokens - 1) / tokens; block-- > 0;) {
        const int64_t first = block * tokens;
        tasks.push_back({.segment = &segment,
                         .segment_index = static_cast<int64_t>(index),
                         .kv_head = kv_head,
                         .first_token = first,
                         .tokens = std::min(tokens, segment.q_count - first),
                         .first_head = head,
                         .heads = here});
      }
      head += here;
    }
  }
  return tasks;
}

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

/// Coefficients of 2^f for f in [-0.5, 0.5], from f^3 on: within 1e-4, at the Chebyshev nodes.
inline constexpr float kPowerOfTwo[] = {0.05583828f, 0.24263948f, 0.69313673f, 0.99992456f};
/// Added to x, it leaves in the low bits the whole number nearest to x, plus float32's bias.
inline constexpr float kWholeAndBias = 0x1.8p23f + 127.0f;

}  // namespace kvcal::cpu
