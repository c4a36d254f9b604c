#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/json.h"
#include "core/value_range.h"
#include "quant/kv_format.h"
#include "quant/observations.h"
#include "quant/scale.h"

namespace kvcal {

// Ranges of observers' settings. Checked when a recipe is read, and again when an observer is made.

/// Of a setting that names no other: parts of a whole.
constexpr NumberRange kParts{.most = 1, .is_above = true};
constexpr NumberRange kPercentiles{.most = 100, .is_above = true};
// Settings of the mse search. The upper bounds guarantee that it ends.
constexpr NumberRange kMaxshrinks = kParts;
constexpr NumberRange kGrids{.least = 1, .most = 100'000};
constexpr NumberRange kNorms{.most = 100, .is_above = true};
constexpr NumberRange kPatiences{.least = 1, .most = 1'000'000};
constexpr NumberRange kExpands{.least = 1, .most = 100};

/// observer_kwargs of `mse`, with llm-compressor's defaults. Source: `MemorylessMSEObserver`.
struct MseOptions {
  double maxshrink = 0.20;  ///< the smallest range tried is about 1 - maxshrink of the start
  double grid = 100.0;      ///< number of steps to a range of zero
  double norm = 2.4;        ///< exponent of an error
  double patience = 5;      ///< the search ends after this many steps in a row without gain
  double expand = 1.0;      ///< factor of the observed range before the first step
};

/// Options from a recipe; keys of other observers are ignored. Throws Error for values out of
/// range.
MseOptions mse_options(const Json& observer_kwargs);

/// Search of llm-compressor's mse observers, without its arithmetic. Step i tries 1 - i / grid of
/// each group's range, for i below maxshrink * grid. A group keeps the first of its smallest
/// errors. The search ends after `patience` steps in a row in which no group improved. All groups
/// stop together, so a group's result depends on the other groups. Source: `_grid_search_mse`.
class RangeSearch {
 public:
  RangeSearch(const MseOptions& options, size_t groups);

  /// Factor of every range in the next step, float32 as in torch; nullopt: the search is over.
  std::optional<float> next();
  /// Takes the errors of that step, one per group.
  void tell(std::span<const double> errors);
  /// Best factor of each group's range; 1 where nothing was tried.
  const std::vector<float>& best() const { return best_; }

 private:
  MseOptions options_;
  int64_t steps_ = 0, step_ = 0, steps_without_gain_ = 0;
  float factor_ = 1.0f;
  std::vector<float> best_;
  std::vector<double> least_errors_;
};

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
Amax mse_amax(const MagnitudeHistogram& histogram, Amax largest, const KvFormat& format,
              const MseOptions& options);

/// Range with the least Kullback-Leibler divergence between the observed and the quantized
/// distribution, among 64 ranges from `largest` down, each 2^(-1/8) of the one before; the largest
/// of equals. Source: TensorRT's calibration (Migacz, GTC 2017), with FP8's codes too instead of
/// INT8's.
Amax entropy_amax(const MagnitudeHistogram& histogram, Amax largest, const KvFormat& format);

/// The loss of a tensor's values by its codes. Sums, so the losses of heads add up.
struct CodeErrors {
  double values = 0;                      ///< all values, zeros too
  double clipped = 0;                     ///< values that are clipped
  double to_zero = 0;                     ///< values of at least 2^-24 whose code is 0
  double squared_error = 0, squared = 0;  ///< sums of error^2 and of value^2

  void add(const CodeErrors& other);
  /// Root of the mean square of the errors over that of the values; 0 where all values are 0.
  double relative_error() const;
};

/// Errors of a scale, estimated as the searches above do.
CodeErrors code_errors(const MagnitudeHistogram& histogram, Amax largest, Scale scale,
                       const KvFormat& format);

}  // namespace kvcal
