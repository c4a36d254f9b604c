#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace kvcal::cpu {

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

}  // namespace kvcal::cpu
