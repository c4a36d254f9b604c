#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/figure.h"

namespace kvcal::report {

/// Even steps along an axis stand for equal differences or for equal ratios.
enum class Spacing { kLinear, kLog };

/// An axis from `least` to `largest`, drawn from `begin` to `end` pixels. Of a logarithmic one both
/// are positive.
class Axis {
 public:
  Axis(Spacing spacing, double least, double largest, double begin, double end);
  /// Holds all finite values with room for marks at both ends. Logarithms have no place for 0:
  /// where it is among the values, `begin` is its place and the others keep away from it. Values
  /// that are negative or not finite are not looked at.
  static Axis around(Spacing spacing, const std::vector<double>& values, double begin, double end);

  /// Place of a value; what lies outside is put at the nearer end.
  double at(double value) const;
  /// Powers of ten, about `most` of them at most; with 2 and 5 between where they are few, and
  /// round numbers at even steps where there is none, or where the axis is linear. 0 where it has a
  /// place of its own.
  std::vector<double> ticks(int most = 8) const;
  /// How a tick is written: numbers as they are, and powers of ten where that is shorter.
  std::string text(double tick) const;
  /// The title with "logarithmic" where even steps stand for equal ratios.
  std::string titled(const std::string& title) const;
  /// Between 0 and the end where the axis begins, values are left out: the place of that break.
  std::optional<double> break_place() const;
  double least() const { return least_; }
  double largest() const { return largest_; }

 private:
  std::vector<double> even_ticks(int most) const;
  Spacing spacing_;
  double least_, largest_, begin_, end_;
  bool has_zero_ = false;
  double zero_ = 0.0;  ///< place of 0
};

/// Lines at the ticks of a vertical axis.
void draw_value_grid(Markup& content, const Axis& axis, double left, double right);
/// The numbers of a vertical axis at the left of `left`, and its break.
void draw_value_numbers(Markup& content, const Axis& axis, double left);

/// The break of a horizontal axis: two strokes around x, from y upwards.
void draw_horizontal_break(Markup& content, double x, double y);

/// "0.001", "100", and "1e-7" where that is shorter.
std::string tick_text(double value);

}  // namespace kvcal::report
