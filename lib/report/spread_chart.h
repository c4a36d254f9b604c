#pragma once

#include <string>
#include <vector>

#include "report/axis.h"
#include "report/figure.h"

namespace kvcal::report {

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

}  // namespace kvcal::report
