#include "kernels/cpu/kv_entry.h"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv_entry.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/kv-inl.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

void store_kv_rows(const StoreKvArgs& args, int64_t begin, int64_t end) {
  for (int64_t h = 0; h < args.x.heads; ++h) {
    uint64_t saturated = 0;
    for (int64_t t = begin; t < end; ++t)
      saturated += store_head(args, args.x.data + t * args.x.row_stride + h * args.x.head_dim, h,
                              (t * args.x.heads + h) * args.x.head_dim);
    if (saturated > 0 && args.saturated)
      std::atomic_ref(args.saturated[h]).fetch_add(saturated, std::memory_order_relaxed);
  }
}

/// Part of the rows and heads for one task.
struct LoadedPart {
  int64_t first_row, end_row, first_head, end_head;
};

template <class Out>
void load_kv_as(const LoadKvArgs& args, const LoadedPart& part) {
  const int64_t row = args.heads * args.head_dim;
  for (int64_t h = part.first_head; h < part.end_head; ++h) {
    const int64_t first = part.first_row * row + h * args.head_dim;
    read_kv({.dtype = args.dtype,
             .first = static_cast<const std::byte*>(args.x) + first * bytes_per_element(args.dtype),
             .row_stride = row,
             .rows = part.end_row - part.first_row,
             .head_dim = args.head_dim,
             .scale = is_fp8(args.dtype) ? args.scales[h] : 1.0f},
            static_cast<Out*>(args.out) + first, row);
  }
}

void load_kv_rows(const LoadKvArgs& args, int64_t begin, int64_t end) {
  // Rows or heads: which of them are more.
  const bool by_heads = args.heads > args.rows;
  const LoadedPart part{by_heads ? 0 : begin, by_heads ? args.rows : end, by_heads ? begin : 0,
                        by_heads ? end : args.heads};
  with_type(args.out_type, [&](auto out) { load_kv_as<decltype(out)>(args, part); });
}

/// Prefetches a row: heads of one projection are interleaved with others, at addresses that the
/// processor does not predict.
HWY_INLINE void prefetch_row(const float* x, int64_t count) {
  constexpr int64_t kLine = 64 / sizeof(float);
  for (int64_t i = 0; i < count; i += kLine) hwy::Prefetch(x + i);
}

/// Processes head h of a part: rotates each row, folds it into the range and stores it while it is
/// in cache.
HWY_NOINLINE void enter_rows(const KvPass& pass, const KvPart& part, int64_t h, RangeFold* range) {
  constexpr int64_t kAhead = 4;
  const CacheSide& side = pass.side;
  const StoreKvArgs stored{
      .x = side.x, .dtype = side.dtype, .scales = side.scales, .out = side.out};
  const int64_t head_dim = side.x.head_dim;
  uint64_t saturated = 0;
  for (int64_t t = part.begin; t < part.end; ++t) {
    float* x = side.x.data + t * side.x.row_stride + h * head_dim;
    if (t + kAhead < part.end) prefetch_row(x + kAhead * side.x.row_stride, head_dim);
    if (pass.rope) turn_head(*pass.rope, t, x);
    if (range) range->fold_row(x, head_dim, part.before + t - part.begin);
    if (side.out)
      saturated += store_head(stored, x, h, ((pass.first_row + t) * side.x.heads + h) * head_dim);
  }
  if (saturated > 0 && side.saturated)
    std::atomic_ref(side.saturated[h]).fetch_add(saturated, std::memory_order_relaxed);
}

/// ranges: [heads] of this part, written where the side is observed and the part belongs to a
/// segment.
void enter_part(const KvPass& pass, const KvPart& part, ObservedRange* ranges) {
  const HeadsView& x = pass.side.x;
  if (!ranges || part.segment < 0) {
    for (int64_t h = 0; h < x.heads; ++h) enter_rows(pass, part, h, nullptr);
    return;
  }
  BinCounts counts;
  // The tables are 64 KiB, far more than the values of a sample's first tokens.
  if (pass.side.histogram && has_table_size((part.end - part.begin) * x.head_dim))
    counts.pairs.fill(0);
  for (int64_t h = 0; h < x.heads; ++h) {
    RangeFold range;
    enter_rows(pass, part, h, &range);
    ranges[h] = range.range();
    if (!pass.side.histogram) continue;
    counts.bins.fill(0);
    count_rows({.x = x.data + part.begin * x.row_stride + h * x.head_dim,
                .tokens = part.end - part.begin,
                .head_dim = x.head_dim,
                .row_stride = x.row_stride},
               ranges[h], counts);
    add_bins(counts, pass.side.histogram + h * BinCounts::kBins);
  }
}

template <class T>
HWY_INLINE const float* as_floats(const T* x, int64_t count, float* buffer) {
  if constexpr (std::is_same_v<T, float>) return x;
  convert_row(x, count, buffer);
  return buffer;
}

/// Returns the part's range, and adds its counts to bins.
template <class T>
ObservedRange observe_part(const ObserveRowsArgs& args, const RowsPart& part, BinCounts& counts) {
  float buffer[std::is_same_v<T, float> ? 1 : BinCounts::kMaxValues];
  const int64_t first = args.segments[static_cast<size_t>(part.segment)].q_begin * args.width;
  const int64_t count = part.end - part.begin;
  const float* x = as_floats(static_cast<const T*>(args.x) + first + part.begin, count, buffer);
  RangeFold fold;
  for (int64_t at = part.begin; at < part.end;) {
    const int64_t row = at / args.width, end = std::min(part.end, (row + 1) * args.width);
    fold.fold_row(x + (at - part.begin), end - at, row);
    at = end;
  }
  const ObservedRange range = fold.range();
  if (args.histogram) {
    counts.bins.fill(0);
    count_values(x, count, range, counts);
  }
  return range;
}

ObservedRange observe_elements(const ObserveRowsArgs& args, const RowsPart& part,
                               BinCounts& counts) {
  return with_type(args.type,
                   [&](auto in) { return observe_part<decltype(in)>(args, part, counts); });
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {

KVCAL_BY_ROWS(store_kv, StoreKvArgs, args.x.tokens, width_of(args.x))

// A cache has many rows of few heads; a product's input is one row of many heads, because each row
// or group has its own scale.
KVCAL_BY_ROWS(load_kv, LoadKvArgs, std::max(args.rows, args.heads),
              std::min(args.rows, args.heads) * args.head_dim)

void CpuBackend::do_simulate_cache(const SimulateCacheArgs& args) {
  for_row_blocks(args.x.tokens, width_of(args.x), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < args.x.heads; ++h) {
        const CachedHead head = args.head(t, h);
        if (args.saturated)
          if (const int64_t clipped = count_clipped(args.format, head); clipped > 0)
            std::atomic_ref(args.saturated[h]).fetch_add(static_cast<uint64_t>(clipped));
        round_trip(args.format, head);
      }
  });
}

HWY_EXPORT(enter_part);

namespace {

/// Adds tokens [begin, end) as parts of a segment, or of none.
void add_parts(KvPart part, int64_t part_tokens, std::vector<KvPart>& parts) {
  for (const int64_t end = part.end; part.begin < end; part.begin = part.end) {
    part.end = std::min(end, part.begin + part_tokens);
    parts.push_back(part);
    part.before += part.end - part.begin;
  }
}

/// Parts that cover every row once if the segments are contiguous; else none.
std::vector<KvPart> parts_of_rows(std::span<const Segment> segments, int64_t tokens,
                                  int64_t part_tokens) {
  std::vector<KvPart> parts;
  int64_t done = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    if (segment.q_begin < done) return {};
    add_parts({.begin = done, .end = segment.q_begin}, part_tokens, parts);
    done = segment.q_begin + segment.q_count;
    add_parts({.begin = segment.q_begin, .end = done, .segment = static_cast<int64_t>(s)},
              part_tokens, parts);
  }
  add_parts({.begin = done, .end = tokens}, part_tokens, parts);
  return parts;
}

std::vector<KvPart> parts_of_segments(std::span<const Segment> segments, int64_t part_tokens) {
  std::vector<KvPart> parts;
  for (size_t s = 0; s < segments.size(); ++s)
    add_parts({.begin = segments[s].q_begin,
               .end = segments[s].q_begin + segments[s].q_count,
               .segment = static_cast<int64_t>(s)},
              part_tokens, parts);
  return parts;
}

/// Tokens of a part whose values stay in a near cache for the second read.
int64_t tokens_of_part(int64_t head_dim) {
  return std::clamp<int64_t>(BinCounts::kMaxValues / std::max<int64_t>(head_dim, 1), 1, 256);
}

/// Merges the ranges of parts, [parts, heads], into those of their segments.
void merge_ranges(std::span<const KvPart> parts, std::span<const ObservedRange> seen,
                  size_t num_segments, const CacheSide& side) {
  const auto heads = static_cast<size_t>(side.x.heads);
  std::fill_n(side.ranges, num_segments * heads, kEmptyRange);
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].segment < 0) continue;
    for (size_t h = 0; h < heads; ++h) {
      const ObservedRange& part = seen[p * heads + h];
      merge_range(part, side.ranges[static_cast<size_t>(parts[p].segment) * heads + h]);
    }
  }
}

/// Runs the parts' pass over each side.
void run_parts(ThreadPool& pool, std::span<const KvPart> parts, size_t num_segments,
               std::span<const KvPass> passes) {
  std::vector<std::vector<ObservedRange>> seen(passes.size());
  for (size_t i = 0; i < passes.size(); ++i)
    if (const CacheSide& side = passes[i].side; side.ranges)
      seen[i].resize(parts.size() * static_cast<size_t>(side.x.heads));
  const auto count = static_cast<int64_t>(parts.size());
  pool.parallel_for(count * static_cast<int64_t>(passes.size()), [&](int64_t task, int) {
    const auto p = static_cast<size_t>(task % count), i = static_cast<size_t>(task / count);
    ObservedRange* ranges =
        seen[i].empty() ? nullptr : &seen[i][p * static_cast<size_t>(passes[i].side.x.heads)];
    HWY_DYNAMIC_DISPATCH(enter_part)(passes[i], parts[p], ranges);
  });
  for (size_t i = 0; i < passes.size(); ++i)
    if (passes[i].side.ranges) merge_ranges(parts, seen[i], num_segments, passes[i].side);
}

bool is_same(const HeadsView& a, const HeadsView& b) {
  return a.data == b.data && a.tokens == b.tokens && a.heads == b.heads &&
         a.head_dim == b.head_dim && a.row_stride == b.row_stride;
}

bool has_work(const CacheSide& side) {
  return side.ranges != nullptr || side.out != nullptr;
}

}  // namespace

void CpuBackend::do_observe_kv(const ObserveKvArgs& args) {
  const KvPass pass{{.x = args.x, .ranges = args.ranges, .histogram = args.histogram}};
  run_parts(pool_, parts_of_segments(args.segments, tokens_of_part(args.x.head_dim)),
            args.segments.size(), {&pass, 1});
}

void CpuBackend::do_enter_cache(const EnterCacheArgs& args) {
  const std::span<const Segment> segments =
      args.k.ranges || args.v.ranges ? args.segments : std::span<const Segment>();
  const int64_t tokens = has_work(args.k) ? args.k.x.tokens : args.v.x.tokens;
  const int64_t head_dim = std::max(args.k.x.head_dim, args.v.x.head_dim);
  const std::vector<KvPart> parts = head_dim > 0
                                        ? parts_of_rows(segments, tokens, tokens_of_part(head_dim))
                                        : std::vector<KvPart>();
  const bool has_same_rows =
      !has_work(args.k) || !has_work(args.v) || args.k.x.tokens == args.v.x.tokens;
  if (parts.empty() || !has_same_rows) return Backend::do_enter_cache(args);

  std::vector<KvPass> passes;
  bool turned = !args.rope.x.data;
  for (const CacheSide* side : {&args.k, &args.v}) {
    if (!has_work(*side)) continue;
    const bool turns = !turned && is_same(args.rope.x, side->x);
    turned |= turns;
    passes.push_back({.side = *side,
                      .rope = turns ? &args.rope : nullptr,
                      .first_row = args.first_row ? *args.first_row : 0});
  }
  if (!turned) do_rope(args.rope);
  run_parts(pool_, parts, segments.size(), passes);
}

HWY_EXPORT(observe_elements);

void CpuBackend::do_observe_rows(const ObserveRowsArgs& args) {
  std::vector<RowsPart> parts;
  for (size_t s = 0; s < args.segments.size(); ++s) {
    const int64_t count = args.segments[s].q_count * args.width;
    for (int64_t begin = 0; begin < count; begin += BinCounts::kMaxValues)
      parts.push_back({.segment = static_cast<int64_t>(s),
                       .begin = begin,
                       .end = std::min(count, begin + BinCounts::kMaxValues)});
  }
  // Each thread's next parts are adjacent, and its tables stay in cache.
  constexpr int64_t kPartsTogether = 8;
  const auto num_parts = std::ssize(parts);
  std::vector<ObservedRange> seen(parts.size());
  pool_.parallel_for((num_parts + kPartsTogether - 1) / kPartsTogether, [&](int64_t task, int) {
    BinCounts counts;
    counts.pairs.fill(0);
    const int64_t end = std::min(num_parts, (task + 1) * kPartsTogether);
    for (int64_t p = task * kPartsTogether; p < end; ++p) {
      const auto at = static_cast<size_t>(p);
      seen[at] = HWY_DYNAMIC_DISPATCH(observe_elements)(args, parts[at], counts);
      if (args.histogram) add_bins(counts, args.histogram);
    }
  });

  std::fill_n(args.ranges, args.segments.size(), kEmptyRange);
  for (size_t p = 0; p < parts.size(); ++p)
    merge_range(seen[p], args.ranges[static_cast<size_t>(parts[p].segment)]);
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
