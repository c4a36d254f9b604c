#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/page.h"

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

/// Distinguishes a series without colour.
enum class Mark { kCircle, kSquare, kTriangle, kDiamond, kCross, kDash };

/// The place of a mark, and its words.
struct MarkPlace {
  double x = 0, y = 0;
  std::string words = {};  ///< shown on hovering, read out
};

/// A mark in the colours of a class.
void draw_mark(Markup& content, Mark mark, const std::string& css_class, const MarkPlace& place);

/// The outline of an error bar from `low` to `high` through a place.
std::string error_bar(const MarkPlace& place, double low, double high);
/// "0.0061 ± 0.0004"; without error, the number alone.
std::string with_error(double value, double error);

/// Class and mark of the i-th of several things that are alike, such as variants.
struct MarkStyle {
  std::string css_class;
  Mark mark = Mark::kCircle;
};
MarkStyle look_of(size_t i);

/// The meaning of one mark, line or hatching of drawings.
struct LegendEntry {
  std::string words;
  Markup sample;  ///< 28 by 16
};
using Legend = std::vector<LegendEntry>;

/// A list for pages; its drawings' ids begin with id.
Markup legend_list(const std::string& id, const Legend& legend);

/// The same as a drawing, in lines of at most that width.
Drawing legend_drawing(const std::string& id, const Legend& legend, double width);

/// A line of words above the next drawing of a file.
Drawing heading_drawing(const std::string& id, const std::string& words);

/// About how wide text of drawings is, in pixels: fonts differ.
double text_width(std::string_view text);

}  // namespace kvcal::report
