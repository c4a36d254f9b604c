#pragma once

#include "quant/fp8.h"
#include "quant/magnitude_histogram.h"
#include "quant/mse_search.h"
#include "quant/scale.h"

namespace kvcal {

// Ranges that are chosen from a histogram of magnitudes. In all of them: magnitudes are spread
// evenly over their bin, which for the highest ends at `largest`; those of bin 0 (below 2^-24,
// zeros too) count as 0. `largest` is the largest magnitude that was seen and lies in the highest
// bin with a count. Throw Error where nothing was counted, or where `largest` is not in that bin.
// Arithmetic in double, the same bits on every machine. Written out in docs/numerics.md.

/// The smallest magnitude that percent (0, 100] of all values do not exceed; `largest` for 100, and
/// where so many values are 0 that it would be 0.
Amax percentile_amax(const MagnitudeHistogram& histogram, Amax largest, double percent);

/// The range whose codes are off by least, summed as |error|^norm over all values: the search of
/// RangeSearch from `largest` down.
Amax mse_amax(const MagnitudeHistogram& histogram, Amax largest, fp8::Format format,
              const MseOptions& options);

/// The range that loses least in Kullback-Leibler divergence between what was seen and what codes
/// tell of it: 64 ranges, each 2^(-1/8) of the one before, from `largest` down; of equal ones the
/// largest. Source: TensorRT's calibration (Migacz, GTC 2017), with FP8's codes in place of INT8's.
Amax entropy_amax(const MagnitudeHistogram& histogram, Amax largest, fp8::Format format);

}  // namespace kvcal
