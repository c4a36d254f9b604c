#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quant/magnitude_histogram.h"

namespace kvcal {

/// Coarse histogram for manifests and reports: counts of magnitudes in halves of octaves. With e =
/// first_octave + j, count 2 j covers [2^e, 1.5 * 2^e), and count 2 j + 1 covers [1.5 * 2^e, 2^(e +
/// 1)).
struct OctaveCounts {
  uint64_t zeros = 0;  ///< magnitudes below 2^-24 * 9/8, bin 0 of the histogram
  int first_octave = 0;
  std::vector<uint64_t> counts;  ///< no zero octave at either end; may be empty

  uint64_t total() const;
  /// Lower edge of counts[i], and upper edge of counts[i - 1].
  double edge(size_t i) const;
};

/// Sum over all heads.
OctaveCounts octave_counts(std::span<const MagnitudeHistogram> heads);

/// Number of magnitudes below value; assumes an even spread inside a count.
double count_below(const OctaveCounts& counts, double value);

}  // namespace kvcal
