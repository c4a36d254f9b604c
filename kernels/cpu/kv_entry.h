#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "backend/operations.h"
#include "quant/observations.h"

namespace kvcal::cpu {

/// Rows [begin, end) of new K or V that one task processes: of one segment, or of none.
struct KvPart {
  int64_t begin = 0, end = 0;
  int64_t segment = -1;
  int64_t before = 0;  ///< tokens of the segment that come before
};

/// Work of one task on K or V.
struct KvPass {
  CacheSide side = {};
  const RopeArgs* rope = nullptr;  ///< null: no rotation
  int64_t first_row = 0;           ///< of out
};

/// Contiguous elements of one segment for one task. Rows of a segment are contiguous, so a part may
/// begin and end inside a row.
struct RowsPart {
  int64_t segment = 0;
  int64_t begin = 0, end = 0;  ///< elements of the segment
};

/// Histogram of one head. Two values are counted at a time, in the table entry at the row and
/// column of their bins, which halves the additions to memory. Two adjacent tables alternate, so
/// that equal values do not wait for each other. A table covers a window of bins below the largest
/// value's; place 0 is bin 0, and bins between the two are counted separately.
struct BinCounts {
  static constexpr int64_t kBins = MagnitudeHistogram::kBins;
  static constexpr int64_t kPlaces = 128;  ///< 16 octaves
  static constexpr int64_t kMaxValues = 16384;
  static constexpr int64_t kRowLength = 2 * kPlaces;  ///< of both: two bytes are an index

  std::array<uint32_t, kBins> bins;
  std::array<uint16_t, kPlaces * kRowLength> pairs;  ///< zeros between two heads
  std::array<uint8_t, kMaxValues> places;
};

/// Adds the counts to the shared histogram.
inline void add_bins(const BinCounts& counts, uint64_t* histogram) {
  // Whole numbers: any order of the additions gives the same sum.
  for (size_t bin = 0; bin < counts.bins.size(); ++bin)
    if (const uint64_t count = counts.bins[bin]; count > 0)
      std::atomic_ref(histogram[bin]).fetch_add(count, std::memory_order_relaxed);
}

/// Merges a part's range into that of its segment; call in order.
inline void merge_range(const ObservedRange& part, ObservedRange& all) {
  all.min = std::min(all.min, part.min);
  all.max = std::max(all.max, part.max);
  if (all.first_nonfinite < 0) all.first_nonfinite = part.first_nonfinite;
}

}  // namespace kvcal::cpu
