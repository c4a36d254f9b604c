#include "report/series_chart.h"

#include <algorithm>
#include <cmath>

#include "report/numbers.h"

namespace kvcal::report {
namespace {

constexpr double kLeft = 56, kRight = 10, kTop = 10, kTitle = 14, kBottom = 34;

/// The geometry of a chart.
struct Plan {
  const SeriesChart& chart;
  Axis axis;

  double place_width() const {
    return (chart.width - kLeft - kRight) / static_cast<double>(chart.places.size());
  }
  double x(size_t i) const { return kLeft + place_width() * (static_cast<double>(i) + 0.5); }
};

bool is_drawn(const SeriesChart& chart, double value) {
  return std::isfinite(value) &&
         (value > 0.0 || (value == 0.0 && chart.spacing == Spacing::kLinear));
}

/// The value's standard error; 0 where none is known.
double error_at(const Series& series, size_t i) {
  return i < series.errors.size() && std::isfinite(series.errors[i]) ? series.errors[i] : 0.0;
}

void draw_values(Markup& content, const Plan& plan, const Series& series) {
  const SeriesChart& chart = plan.chart;
  std::string line;
  bool is_drawing = false;
  Markup marks;
  for (size_t i = 0; i < std::min(series.values.size(), chart.places.size()); ++i) {
    const double value = series.values[i];
    if (!is_drawn(chart, value)) {
      is_drawing = false;
      continue;
    }
    const double x = plan.x(i), y = plan.axis.at(value);
    line += (is_drawing ? "L" : "M") + coordinate(x) + " " + coordinate(y);
    is_drawing = true;
    const double error = error_at(series, i);
    if (error > 0.0)
      draw_path(marks, series.css_class + " deviation",
                error_bar({x, y}, plan.axis.at(value - error), plan.axis.at(value + error)));
    draw_mark(marks, series.mark, series.css_class,
              {x, y,
               series.name + ", " + chart.places_title + " " + chart.places[i] + ": " +
                   with_error(value, error)});
  }
  if (series.mark != Mark::kDash && !line.empty())
    draw_path(content, series.css_class + " line", line);
  content.append(marks);
}

void draw_frame(Drawing& drawing, const Plan& plan) {
  const SeriesChart& chart = plan.chart;
  Markup& content = drawing.content;
  draw_value_grid(content, plan.axis, kLeft, chart.width - kRight);
  draw_value_numbers(drawing.pane, plan.axis, kLeft);
  draw_label(drawing.pane,
             {.x = 0, .y = 11, .text = plan.axis.titled(chart.values_title), .anchor = "start"});
  drawing.pane_width = kLeft;
  double widest = 28;
  for (const std::string& place : chart.places) widest = std::max(widest, text_width(place));
  const auto step = static_cast<size_t>(std::ceil((widest + 6) / plan.place_width()));
  for (size_t i = 0; i < chart.places.size(); i += step)
    draw_label(content,
               {.x = plan.x(i), .y = chart.height - kBottom + 16, .text = chart.places[i]});
  draw_label(content,
             {.x = (kLeft + chart.width) / 2, .y = chart.height - 3, .text = chart.places_title});
}

}  // namespace

Drawing draw_series(const SeriesChart& chart) {
  std::vector<double> values;
  for (const Series& series : chart.series)
    for (const double value : series.values)
      if (is_drawn(chart, value)) values.push_back(value);
  for (const Series& series : chart.series)
    for (size_t i = 0; i < series.errors.size(); ++i)
      for (const double end :
           {series.values[i] - error_at(series, i), series.values[i] + error_at(series, i)})
        if (is_drawn(chart, end)) values.push_back(end);
  Drawing drawing = chart_drawing(chart, chart.height);
  if (values.empty() || chart.places.empty()) return drawing;
  const Plan plan{chart,
                  Axis::around(chart.spacing, values, chart.height - kBottom, kTop + kTitle)};
  draw_frame(drawing, plan);
  for (const Series& series : chart.series) draw_values(drawing.content, plan, series);
  return drawing;
}

Legend series_legend(const std::vector<Series>& series) {
  Legend legend;
  for (const Series& one : series) {
    Markup sample;
    if (one.mark != Mark::kDash) draw_path(sample, one.css_class + " line", "M0 8H28");
    draw_mark(sample, one.mark, one.css_class, {14, 8});
    legend.push_back({one.name, sample});
  }
  return legend;
}

std::vector<std::string> place_names(const std::vector<int64_t>& numbers) {
  std::vector<std::string> names;
  for (const int64_t number : numbers) names.push_back(std::to_string(number));
  return names;
}

}  // namespace kvcal::report
