#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/kv_entry.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/observe_rows.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/kv-inl.h"

#ifndef KVCAL_KERNELS_CPU_OBSERVE_ROWS_ONCE
#define KVCAL_KERNELS_CPU_OBSERVE_ROWS_ONCE
namespace kvcal::cpu {

/// Contiguous elements of one segment for one task. Rows of a segment are contiguous, so a part may
/// begin and end inside a row.
struct RowsPart {
  int64_t segment = 0;
  int64_t begin = 0, end = 0;  ///< elements of the segment
};

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

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
