#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/axis.h"
#include "report/figure.h"
#include "report/legend.h"

namespace kvcal::report {

/// Something with two numbers, neither negative.
struct ScatterPoint {
  double x = 0, y = 0;
  std::string label = {};  ///< beside the mark, cut where it is long
  std::string words = {};  ///< shown on hovering, read out
  std::string css_class = {};
  Mark mark = Mark::kCircle;
  bool is_chosen = false;  ///< has a ring
  std::string key = {};    ///< of its row in a table; empty: none
  double y_error = 0;      ///< standard error of y; 0: none is known
};

/// A level of y that a line shows.
struct Level {
  double y = 0;
  std::string words;
};

struct ScatterChart {
  std::string id, title = {}, description = {}, x_title = {}, y_title = {};
  Spacing x_spacing = Spacing::kLinear, y_spacing = Spacing::kLog;
  std::vector<ScatterPoint> points = {};
  std::vector<size_t> front = {};  ///< indices of points that a line joins, in its order
  bool has_steps = false;  ///< the line goes by steps: what lies beyond its corners is worse
  std::optional<Level> level = {};
  std::string (*x_text)(double) = nullptr;  ///< how ticks of x are written; null: as numbers
  double width = 1180, height = 420;
};

/// Marks that would cover each other are moved aside; labels stand beside their marks, one below
/// the other. Without content where there is no point.
Drawing draw_scatter(const ScatterChart& chart);

}  // namespace kvcal::report
