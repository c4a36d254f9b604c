#pragma once

#include <string>
#include <vector>

#include "report/figure.h"

namespace kvcal::report {

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
struct Look {
  std::string css_class;
  Mark mark = Mark::kCircle;
};
Look look_of(size_t i);

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
