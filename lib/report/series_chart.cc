#include "report/series_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/log_axis.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

constexpr double kLeft = 56, kRight = 10, kTop = 10, kBottom = 34;

/// Where layers and values lie in a chart.
struct Plot {
  const SeriesChart& chart;
  LogAxis axis;

  double x(size_t i) const {
    const double inner = chart.width - kLeft - kRight;
    return kLeft +
           inner * (static_cast<double>(i) + 0.5) / static_cast<double>(chart.layers.size());
  }
};

void draw_mark(Markup& content, const Series& series, double x, double y,
               const std::string& words) {
  const std::string css_class = series.css_class + " mark";
  if (series.mark == Mark::kCircle) {
    content.open("circle",
                 {{"class", css_class}, {"cx", coordinate(x)}, {"cy", coordinate(y)}, {"r", "3"}});
    content.element("title", words).close("circle");
    return;
  }
  // A square, or a dash as wide as it.
  const double half_height = series.mark == Mark::kSquare ? 3 : 1;
  content.open("rect", {{"class", css_class},
                        {"x", coordinate(x - (series.mark == Mark::kSquare ? 3 : 5))},
                        {"y", coordinate(y - half_height)},
                        {"width", series.mark == Mark::kSquare ? "6" : "10"},
                        {"height", coordinate(2 * half_height)}});
  content.element("title", words).close("rect");
}

void draw_values(Markup& content, const Plot& plot, const Series& series) {
  std::string line;
  bool is_drawing = false;
  Markup marks;
  for (size_t i = 0; i < series.values.size(); ++i) {
    const double value = series.values[i];
    if (!(value > 0.0)) {
      is_drawing = false;
      continue;
    }
    const double x = plot.x(i), y = plot.axis.at(value);
    line += (is_drawing ? "L" : "M") + coordinate(x) + " " + coordinate(y);
    is_drawing = true;
    draw_mark(marks, series, x, y,
              series.name + ", layer " + std::to_string(plot.chart.layers[i]) + ": " +
                  number_text(value));
  }
  if (series.mark != Mark::kDash && !line.empty())
    content.leaf("path", {{"class", series.css_class + " line"}, {"d", line}});
  content.append(marks);
}

void draw_frame(Markup& content, const Plot& plot) {
  const SeriesChart& chart = plot.chart;
  for (const double tick : plot.axis.ticks()) {
    const double y = plot.axis.at(tick);
    content.leaf("path", {{"class", "grid"},
                          {"d", "M" + coordinate(kLeft) + " " + coordinate(y) + "H" +
                                    coordinate(chart.width - kRight)}});
    draw_label(content, {.x = kLeft - 6, .y = y + 4, .text = tick_text(tick), .anchor = "end"});
  }
  const auto count = chart.layers.size();
  const auto most = std::max<size_t>(1, static_cast<size_t>(chart.width / 34));
  const size_t step = (count + most - 1) / most;
  for (size_t i = 0; i < count; i += step)
    draw_label(content, {.x = plot.x(i),
                         .y = chart.height - kBottom + 16,
                         .text = std::to_string(chart.layers[i])});
  draw_label(content, {.x = (kLeft + chart.width) / 2, .y = chart.height - 3, .text = "layer"});
}

}  // namespace

Markup draw_series(const SeriesChart& chart) {
  double least = std::numeric_limits<double>::infinity(), largest = 0.0;
  for (const Series& series : chart.series)
    for (const double value : series.values)
      if (value > 0.0) {
        least = std::min(least, value);
        largest = std::max(largest, value);
      }
  if (largest == 0.0) return {};
  // Room for the marks at both ends.
  const double room = std::max(1.15, std::pow(largest / least, 0.06));
  const Plot plot{chart, LogAxis(least / room, largest * room, chart.height - kBottom, kTop)};
  Drawing drawing{.id = chart.id,
                  .title = chart.title,
                  .description = chart.description,
                  .width = chart.width,
                  .height = chart.height,
                  .css_class = "chart",
                  .content = {}};
  draw_frame(drawing.content, plot);
  for (const Series& series : chart.series) draw_values(drawing.content, plot, series);
  return svg(drawing);
}

Markup series_legend(const std::string& id, const std::vector<Series>& series) {
  Markup list;
  list.open("ul", {{"class", "legend"}});
  for (size_t i = 0; i < series.size(); ++i) {
    Markup content;
    if (series[i].mark != Mark::kDash)
      content.leaf("path", {{"class", series[i].css_class + " line"}, {"d", "M0 8H28"}});
    draw_mark(content, series[i], 14, 8, series[i].name);
    list.open("li").append(svg({.id = id + std::to_string(i),
                                .title = series[i].name,
                                .description = "the mark of this series",
                                .width = 28,
                                .height = 16,
                                .css_class = "",
                                .content = content}));
    list.text(series[i].name).close("li");
  }
  return list.close("ul");
}

}  // namespace kvcal::report
