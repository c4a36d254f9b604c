#pragma once

#include "quant/fp8.h"
#include "quant/magnitude_histogram.h"
#include "quant/mse_search.h"
#include "quant/scale.h"

namespace kvcal {

// Ranges chosen from a histogram of magnitudes. All searches spread magnitudes evenly over their
// bin; the highest bin ends at `largest`, and bin 0 (below 2^-24, including zeros) counts as 0.
// `largest` is the largest observed magnitude and lies in the highest bin with a count. They throw
// Error where the histogram is empty or `largest` is not in that bin. Arithmetic is in double, with
// the same bits on every machine. docs/numerics.md has the formulas.

/// Smallest magnitude that percent (0, 100] of all values do not exceed; `largest` for 100, and
/// where the result would be 0.
Amax percentile_amax(const MagnitudeHistogram& histogram, Amax largest, double percent);

/// Range with the least quantization error, summed as |error|^norm over all values. RangeSearch
/// searches from `largest` down.
Amax mse_amax(const MagnitudeHistogram& histogram, Amax largest, fp8::Format format,
              const MseOptions& options);

/// Range with the least Kullback-Leibler divergence between the observed and the quantized
/// distribution, among 64 ranges from `largest` down, each 2^(-1/8) of the one before; the largest
/// of equals. Source: TensorRT's calibration (Migacz, GTC 2017), with FP8's codes instead of
/// INT8's.
Amax entropy_amax(const MagnitudeHistogram& histogram, Amax largest, fp8::Format format);

}  // namespace kvcal
