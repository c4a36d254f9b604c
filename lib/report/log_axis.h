#pragma once

#include <string>
#include <vector>

namespace kvcal::report {

/// A logarithmic axis from `least` to `largest` (positive), drawn from `begin` to `end` pixels.
class LogAxis {
 public:
  LogAxis(double least, double largest, double begin, double end);

  /// Place of a value; what lies outside is put at the nearer end.
  double at(double value) const;
  /// Powers of ten, about `most` of them at most; with 2 and 5 between where they are few, and
  /// round numbers at even steps where there is none.
  std::vector<double> ticks(int most = 8) const;
  double least() const { return least_; }
  double largest() const { return largest_; }

 private:
  std::vector<double> even_ticks() const;
  double least_, largest_, begin_, end_;
};

/// "0.001", "100", and "1e-7" where that is shorter.
std::string tick_text(double value);

}  // namespace kvcal::report
