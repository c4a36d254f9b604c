#pragma once

namespace kvcal {

/// Values that a number of a file may have: from least (exclusive where is_above) to most.
struct NumberRange {
  double least = 0.0, most = 0.0;
  bool is_above = false;

  /// False for NaN.
  constexpr bool contains(double value) const {
    return (is_above ? value > least : value >= least) && value <= most;
  }
};

}  // namespace kvcal
