#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/json.h"

namespace kvcal {

/// observer_kwargs of `mse`, with llm-compressor's defaults. Source: `MemorylessMSEObserver`.
struct MseOptions {
  double maxshrink = 0.20;  ///< the smallest range tried is about 1 - maxshrink of the start
  double grid = 100.0;      ///< number of steps to a range of zero
  double norm = 2.4;        ///< exponent of an error
  int64_t patience = 5;     ///< the search ends after this many steps in a row without gain
  double expand = 1.0;      ///< factor of the observed range before the first step
};

/// Options from a recipe; keys of other observers are ignored. Throws Error for values out of range
/// (setting_range.h).
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

}  // namespace kvcal
