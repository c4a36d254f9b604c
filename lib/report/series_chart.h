#pragma once

#include <string>
#include <vector>

#include "report/axis.h"
#include "report/legend.h"

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

/// "0", "1", … as places.
std::vector<std::string> place_names(const std::vector<int64_t>& numbers);

}  // namespace kvcal::report
