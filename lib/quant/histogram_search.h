#pragma once

#include "quant/fp8.h"
#include "quant/magnitude_histogram.h"
#include "quant/mse_search.h"
#include "quant/scale.h"

namespace kvcal {

// Ranges chosen from a histogram of magnitudes, and errors of a scale. All spread magnitudes evenly
// over their bin; the highest bin ends at `largest`, and bin 0 (below 2^-24, including zeros)
// counts as 0. `largest` is the largest observed magnitude and lies in the highest bin with a
// count. They throw Error where the histogram is empty or `largest` is not in that bin. Arithmetic
// is in double, with the same bits on every machine. docs/numerics.md has the formulas.

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

/// The loss of a tensor's values by FP8 codes. Sums, so the losses of heads add up.
struct CodeErrors {
  double values = 0;                      ///< all values, zeros too
  double clipped = 0;                     ///< values with a magnitude over scale * largest code
  double to_zero = 0;                     ///< values of at least 2^-24 whose code is 0
  double squared_error = 0, squared = 0;  ///< sums of error^2 and of value^2

  void add(const CodeErrors& other);
  /// Root of the mean square of the errors over that of the values; 0 where all values are 0.
  double relative_error() const;
};

/// Errors of a scale, estimated as the searches above do.
CodeErrors code_errors(const MagnitudeHistogram& histogram, Amax largest, Scale scale,
                       fp8::Format format);

}  // namespace kvcal
