#pragma once

#include "quant/fp8.h"
#include "quant/octave_counts.h"

namespace kvcal::report {

/// Magnitudes at which what an FP8 code with this scale can say changes.
struct Fp8Range {
  double to_zero = 0;  ///< below: the code is 0
  double normal = 0;   ///< below: subnormal, fewer bits the smaller the value
  double largest = 0;  ///< above: clipped
};
Fp8Range fp8_range(double scale, fp8::Format format);

/// Shares of all counted values, about: counts are taken to be even inside half an octave.
struct RangeShares {
  double to_zero = 0;    ///< rounded to 0, zeros themselves too
  double subnormal = 0;  ///< kept with fewer bits
};
RangeShares shares_of(const OctaveCounts& counts, const Fp8Range& range);

}  // namespace kvcal::report
