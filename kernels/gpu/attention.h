// Shared code of the attention kernels. Each walks keys in tiles, which begin at multiples of the
// tile's size from the sequence's first key, with the online softmax of Milakov and Gimelshein
// (2018). Each query has its own sums, so its bytes do not depend on the other queries.

#pragma once

#include <string>

#include "kernels/gpu/chips.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/half_words.h"
#include "kernels/gpu/kv.h"

namespace kvcal::gpu {

constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kLowest = -3.40282346638528859812e+38f;

/// Distribution of queries over blocks. A row of a block is a query of one head; heads that share
/// keys are adjacent, so that one load of a tile serves all of them.
struct AttentionGrid {
  int rows = 0;               ///< of a block
  int packed_heads = 0;       ///< heads of one query among the rows; divides heads / kv_heads
  int64_t first_segment = 0;  ///< of blockIdx.y 0
  int64_t query_blocks = 0;   ///< of the longest segment
};

/// Kernel arguments: current_segments points to the segments on the device, v_head_dim is never 0,
/// and host pointers are not followed.
using DeviceAttention = AttentionArgs;

/// Rows of this block.
struct BlockRows {
  Segment segment;
  int64_t first_query = 0;  ///< within the segment
  int first_head = 0, kv_head = 0, packed_heads = 1;
  int count = 0;  ///< 0: no work

  __device__ int64_t query(int row) const { return first_query + row / packed_heads; }
  __device__ int head(int row) const { return first_head + row % packed_heads; }
  __device__ int64_t position(int row) const {
    return segment.kv_count - segment.q_count + query(row);
  }
};

/// Rows of this block: grid.x gives the work, longest first, grid.y the segment.
__device__ inline BlockRows rows_of_block(const DeviceAttention& args, const AttentionGrid& grid) {
  BlockRows rows;
  rows.segment = args.current_segments[grid.first_segment + blockIdx.y];
  rows.packed_heads = grid.packed_heads;
  const int head_groups = static_cast<int>(args.heads) / grid.packed_heads;
  const int64_t block = grid.query_blocks - 1 - blockIdx.x / head_groups;
  rows.first_head = static_cast<int>(blockIdx.x) % head_groups * grid.packed_heads;
  rows.kv_head = rows.first_head / static_cast<int>(args.heads / args.kv_heads);
  const int64_t queries = grid.rows / grid.packed_heads;
  rows.first_query = block * queries;
  const int64_t left = rows.segment.q_count - rows.first_query;
  rows.count = static_cast<int>(larger<int64_t>(smaller(queries, left), 0)) * grid.packed_heads;
  return rows;
}

/// Keys that a query sees, counted from the sequence's first; none where last < first.
struct VisibleKeys {
  int64_t first = 0, last = -1;
  __device__ bool holds(int64_t key) const { return key >= first && key <= last; }
};
__device__ inline VisibleKeys seen_at(const DeviceAttention& args, int64_t position) {
  const int64_t window = args.sliding_window;
  return {window > 0 ? larger<int64_t>(position - window + 1, 0) : 0, position};
}

/// Kernels with matrix instructions count keys in 32 bits.
constexpr int64_t kMaxKeys = int64_t{1} << 30;

/// A query's head as RoPE reads it.
struct QueryHead {
  const float* x = nullptr;
  Angles angles;
  int64_t table_row = 0;
};
__device__ inline QueryHead query_head(const DeviceAttention& args, int64_t row, int64_t head) {
  QueryHead query{
      .x = args.q + row * args.q_row_stride + head * args.head_dim, .angles = {}, .table_row = 0};
  if (args.rope.x.data) {
    query.angles = angles_of(args.rope);
    query.table_row = query.angles.positions[row] * query.angles.half;
  }
  return query;
}
/// Whether neighbouring elements of q are in one word of 8 bytes, and so are their partners in
/// RoPE.
inline bool turns_in_pairs(const AttentionArgs& args) {
  const RopeArgs& rope = args.rope;
  return rope.rotary_dim % 4 == 0 && args.head_dim % 2 == 0 && args.q_row_stride % 2 == 0 &&
         is_aligned(args.q, 8) && is_aligned(rope.cos, 8) && is_aligned(rope.sin, 8);
}

/// Element d of the query of a block's row; 0 outside. Without RoPE.
__device__ inline float query_element(const DeviceAttention& args, const BlockRows& rows, int row,
                                      int64_t d) {
  if (row >= rows.count || d >= args.head_dim) return 0.0f;
  return args.q[(rows.segment.q_begin + rows.query(row)) * args.q_row_stride +
                rows.head(row) * args.head_dim + d];
}

/// Elements d and d + 1 of it after RoPE; d is even. RoPE needs turns_in_pairs.
__device__ inline void query_pair(const DeviceAttention& args, const BlockRows& rows, int row,
                                  int64_t d, float (&pair)[2]) {
  if (!args.rope.x.data || row >= rows.count || d >= args.head_dim) {
    for (int e = 0; e < 2; ++e) pair[e] = query_element(args, rows, row, d + e);
    return;
  }
  const QueryHead query = query_head(args, rows.segment.q_begin + rows.query(row), rows.head(row));
  turned_vector<2>(query.x, d, query.angles, query.table_row, pair);
}

/// Whether a query that sees no key behind last sees the key.
__device__ inline bool sees_key(const DeviceAttention& args, int last, int key) {
  const int window = static_cast<int>(smaller<int64_t>(args.sliding_window, kMaxKeys));
  return key <= last && (window == 0 || key > last - window);
}

/// Keys of a block: those that any query sees, and those that all do.
struct BlockKeys {
  int first, last, all_begin, all_end;

  __device__ BlockKeys(const DeviceAttention& args, const BlockRows& rows)
      : first(static_cast<int>(seen_at(args, rows.position(0)).first)),
        last(static_cast<int>(rows.position(rows.count - 1))),
        all_begin(static_cast<int>(seen_at(args, last).first)),
        all_end(static_cast<int>(rows.position(0))) {}
  /// Whether a tile of so many keys has one that some query does not see.
  __device__ bool is_masked(int tile, int keys) const {
    return tile < all_begin || tile + keys - 1 > all_end;
  }
};

/// Scale of a KV head's stored elements.
__device__ inline float scale_of(const DeviceAttention& args, const float* scales, int kv_head) {
  return args.kv_dtype >= KvDType::kFp8E4m3 ? scales[kv_head] : 1.0f;
}

/// Converts sums of products to capped base-2 scores.
struct ScoreUnits {
  float factor = 1.0f;  ///< sum -> score, or -> score / cap
  float cap = 0.0f;
  __device__ float score(float sum) const {
    return cap > 0.0f ? cap * tanhf(sum * factor) : sum * factor;
  }
};
__device__ inline ScoreUnits score_units(const DeviceAttention& args, float scale) {
  const float real = args.softmax_scale * scale;
  if (args.softcap > 0.0f) return {real / args.softcap, args.softcap * kLog2e};
  return {real * kLog2e, 0.0f};
}

/// What the distance from a query to a key adds to base-2 scores of its head.
struct KeySlope {
  float per_key = 0.0f;
  int64_t position = 0;  ///< of the query
  __device__ float score(float capped, int64_t key) const {
    return fmaf(per_key, static_cast<float>(key - position), capped);
  }
};
__device__ inline KeySlope slope_of(const DeviceAttention& args, int64_t head, int64_t position) {
  return {args.slopes ? args.slopes[head] * kLog2e : 0.0f, position};
}

/// A base-2 score with the logit of the key's distance from the query, of a row of q.
__device__ inline float relative_score(const DeviceAttention& args, int64_t q_row, int64_t head,
                                       int64_t distance, float score) {
  if (!args.relative.states) return score;
  return score + args.relative.at(q_row * args.heads + head, distance) * kLog2e;
}

/// Initial maximum and sum of a head's softmax: those of its sink, if any.
struct SoftmaxStart {
  float largest = kLowest, sum = 0.0f;
};
__device__ inline SoftmaxStart softmax_start(const DeviceAttention& args, int64_t head) {
  if (!args.sinks) return {};
  return {larger(args.sinks[head] * kLog2e, kLowest), 1.0f};
}

/// Rounds and writes one element of out, and folds it into the observation.
__device__ inline void write_attended(const DeviceAttention& args, int64_t at, float value,
                                      ThreadAmax& seen) {
  switch (args.out_type) {
    case ComputeType::kFloat32:
      static_cast<float*>(args.out)[at] = value;
      return seen.see(value);
    case ComputeType::kBFloat16: {
      const BF16 rounded = to_bf16(value);
      static_cast<BF16*>(args.out)[at] = rounded;
      return seen.see(to_float(rounded));
    }
    case ComputeType::kFloat16: {
      const F16 rounded = to_f16(value);
      static_cast<F16*>(args.out)[at] = rounded;
      return seen.see(to_float(rounded));
    }
  }
}

/// Rounds and writes two neighbours of out, of 16 bits, and folds them into the observation.
__device__ inline void write_pair(const DeviceAttention& args, int64_t at, float first,
                                  float second, ThreadAmax& seen) {
  const bool is_bf16 = args.out_type == ComputeType::kBFloat16;
  const uint32_t word = is_bf16 ? pair_of<BF16>(first, second) : pair_of<F16>(first, second);
  *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(args.out) + at) = word;
  if (!args.seen.amax) return;
  for (int e = 0; e < 2; ++e) {
    const auto bits = static_cast<uint16_t>(word >> (16 * e));
    seen.see(is_bf16 ? to_float(BF16{bits}) : to_float(F16{bits}));
  }
}

// ---- the host's side ----

/// Grid for so many rows a block, with as many packed heads as divide a KV head's.
AttentionGrid attention_grid(const AttentionArgs& args, int rows);

/// General attention in float32.
void attend_simt(Stream& stream, const DeviceAttention& args);
/// Attention with matrix instructions of warps (CUDA) or of wavefronts (HIP), for 16-bit results;
/// false where they are not supported. slow: set to the reason where a user should know it: of
/// shape or chip, not of the asked arithmetic.
bool attend_with_warps(Stream& stream, const DeviceAttention& args, const DeviceProperties& chip,
                       std::string& slow);
bool attend_with_waves(Stream& stream, const DeviceAttention& args, const DeviceProperties& chip,
                       std::string& slow);
/// The same with matrix instructions of warpgroups, which the program must have code for.
bool attend_with_warpgroups(Stream& stream, const DeviceAttention& args,
                            const DeviceProperties& chip);

/// Floats of scratch that attend_decoding needs; 0: it is not supported.
int64_t decoding_scratch(const AttentionArgs& args);
/// Split-KV attention in float32, for a few queries a segment: blocks divide the keys.
void attend_decoding(Stream& stream, const DeviceAttention& args, float* scratch);

/// What one line says of attention that runs in float32 instead.
inline std::string slow_text(const DeviceAttention& args, const DeviceProperties& chip,
                             const std::string& reason) {
  return "attention runs in float32 without " + std::string(matrix_units(chip.architecture)) +
         ", which is slow: " + reason + " (head_dim " +
         std::to_string(larger(args.head_dim, args.v_head_dim)) + ", " +
         std::string(name_of(args.kv_dtype)) + " cache)";
}

/// What of the shape is not supported; "" where all is.
inline std::string unsupported_shape(const DeviceAttention& args) {
  const int64_t bytes = bytes_per_element(args.kv_dtype);
  if (args.head_dim > 256 || args.v_head_dim > 256) return "heads are wider than 256";
  if (args.v_head_dim % 8 != 0 || args.head_dim * bytes % 16 != 0 ||
      args.v_head_dim * bytes % 16 != 0)
    return "a head's row is no multiple of 16 bytes";
  if (!is_aligned(args.k, 16) || !is_aligned(args.v, 16) || !is_aligned(args.out, 4))
    return "the cache is not aligned to 16 bytes";
  for (const Segment& segment : args.segments)
    if (segment.kv_count >= kMaxKeys) return "a sequence is longer than 2^30 keys";
  return "";
}

/// Launches a kernel of attention on all segments; the grid's y is limited.
template <class Kernel>
void launch_on_segments(const DeviceAttention& args, AttentionGrid grid, Launch where,
                        const Kernel& kernel) {
  where.blocks = grid.query_blocks * (args.heads / grid.packed_heads);
  const int64_t count = static_cast<int64_t>(args.segments.size());
  for (grid.first_segment = 0; grid.first_segment < count; grid.first_segment += 65535) {
    where.blocks_y = static_cast<unsigned>(smaller<int64_t>(count - grid.first_segment, 65535));
    launch("attention", where, kernel, args, grid);
  }
}

/// Launches Kernel<Kv, kDim>::kEntry, by blocks of kThreads that take kRows rows and kSharedBytes.
template <template <class, int> class Kernel, class Kv, int kDim>
bool launch_attention(Stream& stream, const DeviceAttention& args, const DeviceProperties& chip,
                      std::string& slow) {
  using This = Kernel<Kv, kDim>;
  if (This::kSharedBytes > chip.shared_bytes_per_block) {
    slow = slow_text(args, chip,
                     "its tiles take " + std::to_string(This::kSharedBytes) +
                         " bytes of shared memory, a block of " + chip.architecture + " has " +
                         std::to_string(chip.shared_bytes_per_block));
    return false;
  }
  launch_on_segments(
      args, attention_grid(args, This::kRows),
      {.stream = stream, .threads = This::kThreads, .shared_bytes = This::kSharedBytes},
      This::kEntry);
  return true;
}

/// There need not be a kernel for every Kv and width.
template <template <class, int> class Kernel, class Kv, int kDim>
requires(!requires {
  Kernel<Kv, kDim>::kEntry;
}) bool launch_attention(Stream&, const DeviceAttention&, const DeviceProperties&, std::string&) {
  return false;
}

/// The same for the narrowest kernel that holds the heads; false, with the reason, where none does.
template <template <class, int> class Kernel>
bool launch_for_shape(Stream& stream, const DeviceAttention& args, const DeviceProperties& chip,
                      std::string& slow) {
  if (args.out_type == ComputeType::kFloat32) return false;
  if (const std::string reason = unsupported_shape(args); !reason.empty()) {
    slow = slow_text(args, chip, reason);
    return false;
  }
  const int64_t dim = larger(args.head_dim, args.v_head_dim);
  bool is_launched = false;
  with_kv_type(args.kv_dtype, [&]<class Kv>(Kv) {
    is_launched = dim <= 64    ? launch_attention<Kernel, Kv, 64>(stream, args, chip, slow)
                  : dim <= 96  ? launch_attention<Kernel, Kv, 96>(stream, args, chip, slow)
                  : dim <= 128 ? launch_attention<Kernel, Kv, 128>(stream, args, chip, slow)
                               : launch_attention<Kernel, Kv, 256>(stream, args, chip, slow);
  });
  return is_launched;
}

}  // namespace kvcal::gpu
