#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quant/magnitude_histogram.h"

namespace kvcal {

/// A histogram as manifests and reports have it: counts of magnitudes in halves of octaves. Count
/// 2 j is of [2^e, 1.5 * 2^e) and count 2 j + 1 of [1.5 * 2^e, 2^(e + 1)), e = first_octave + j.
struct OctaveCounts {
  uint64_t zeros = 0;  ///< magnitudes below 2^-24 * 9/8, bin 0 of the histogram
  int first_octave = 0;
  std::vector<uint64_t> counts;  ///< neither the first two nor the last are 0; may be empty

  uint64_t total() const;
  /// Lower edge of counts[i], and the upper one of counts[i - 1].
  double edge(size_t i) const;
};

/// The sum of all heads.
OctaveCounts octave_counts(std::span<const MagnitudeHistogram> heads);

/// How many magnitudes are below value; inside a count they are taken to be spread evenly.
double count_below(const OctaveCounts& counts, double value);

}  // namespace kvcal
