#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/figure.h"

namespace kvcal::report {

/// How a series is told from others without colour.
enum class Mark { kCircle, kSquare, kDash };

/// One number a layer; NaN where there is none.
struct Series {
  std::string name;
  std::string css_class;
  Mark mark = Mark::kCircle;
  std::vector<double> values;
};

/// Positive numbers over the layers of a model, on a logarithmic axis.
struct SeriesChart {
  std::string id, title, description;
  std::vector<int64_t> layers;
  std::vector<Series> series;
  double width = 1180, height = 300;
};

/// Empty where no series has a positive number.
Markup draw_series(const SeriesChart& chart);

/// The marks of the series and what they stand for.
Markup series_legend(const std::string& id, const std::vector<Series>& series);

}  // namespace kvcal::report
