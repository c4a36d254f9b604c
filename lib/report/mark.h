#pragma once

#include <string>

#include "report/markup.h"

namespace kvcal::report {

/// How a series is told from others without colour.
enum class Mark { kCircle, kSquare, kTriangle, kDiamond, kCross, kDash };

/// The place of a mark, and its words.
struct MarkPlace {
  double x = 0, y = 0;
  std::string words = {};  ///< shown on hovering, read out
};

/// A mark in the colours of a class.
void draw_mark(Markup& content, Mark mark, const std::string& css_class, const MarkPlace& place);

/// Class and mark of the i-th of several things that are alike, such as variants.
struct Look {
  std::string css_class;
  Mark mark = Mark::kCircle;
};
Look look_of(size_t i);

}  // namespace kvcal::report
