#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/axis.h"
#include "report/page.h"

namespace kvcal::report {

/// One number a place; NaN where there is none.
struct Series {
  std::string name;
  std::string css_class;
  Mark mark = Mark::kCircle;
  std::vector<double> values = {};
  std::vector<double> errors = {};  ///< standard errors of the values; empty: none is known
};

/// Numbers that are not negative over places in a row: layers of a model, ranges of positions.
struct SeriesChart {
  std::string id, title, description;
  std::string places_title = "layer";  ///< what a place is
  std::string values_title = {};       ///< what stands above the vertical axis
  std::vector<std::string> places = {};
  std::vector<Series> series = {};
  Spacing spacing = Spacing::kLog;
  double width = 1180, height = 300;
};

/// Without content where no series has a number; on a logarithmic axis, none that is positive.
Drawing draw_series(const SeriesChart& chart);

/// The marks of the series and what they stand for.
Legend series_legend(const std::vector<Series>& series);

/// A figure of the chart with its legend, whose ids begin with mark_id; figure.drawings stand below
/// them. Nothing where there is nothing to draw.
Markup series_figure(const SeriesChart& chart, const std::string& mark_id, Figure figure);

/// "0", "1", … as places.
std::vector<std::string> place_names(const std::vector<int64_t>& numbers);

/// Numbers of one kind, none negative: a row of ticks with its quartiles.
struct SpreadRow {
  std::string name, css_class;
  std::vector<double> values = {};
};

struct SpreadChart {
  std::string id, title, description, values_title;
  std::vector<SpreadRow> rows = {};
  Spacing spacing = Spacing::kLog;
  double width = 1180;
};

/// The value below which that part of the values lies; NaN for none.
double quantile(std::vector<double> values, double part);

/// Without content where no row has a value.
Drawing draw_spread(const SpreadChart& chart);

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
