#include "report/spread_chart.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "report/legend.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

constexpr double kRowHeight = 30, kTop = 8, kBottom = 38, kRight = 14;

/// A tick each value; values that would be drawn on each other, once.
std::string ticks_path(const Axis& axis, const std::vector<double>& values, double y) {
  std::set<int64_t> places;
  for (const double value : values)
    if (std::isfinite(value)) places.insert(std::llround(axis.at(value) * 2));
  std::string path;
  for (const int64_t place : places)
    path += "M" + coordinate(static_cast<double>(place) / 2) + " " + coordinate(y - 8) + "v16";
  return path;
}

void draw_row(Drawing& drawing, const Axis& axis, const SpreadRow& row, double y, double left) {
  Markup& content = drawing.content;
  draw_label(drawing.pane,
             {.x = left - 10, .y = y + 4, .text = row.name, .anchor = "end", .css_class = "name"});
  const std::string ticks = ticks_path(axis, row.values, y);
  if (ticks.empty()) return;
  draw_path(content, row.css_class + " ticks", ticks);
  const double first = axis.at(quantile(row.values, 0.25));
  const double last = axis.at(quantile(row.values, 0.75));
  content.open("rect", {{"class", "box"},
                        {"x", coordinate(first)},
                        {"y", coordinate(y - 5)},
                        {"width", coordinate(std::max(1.0, last - first))},
                        {"height", "10"}});
  content.element("title", row.name + ": half of all between " +
                               number_text(quantile(row.values, 0.25)) + " and " +
                               number_text(quantile(row.values, 0.75)) + ", median " +
                               number_text(quantile(row.values, 0.5)));
  content.close("rect");
  draw_path(content, "limit", move_to(axis.at(quantile(row.values, 0.5)), y - 8) + "v16");
}

}  // namespace

double quantile(std::vector<double> values, double part) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::nan("");
  std::ranges::sort(values);
  const double place = part * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], place - static_cast<double>(below));
}

Drawing draw_spread(const SpreadChart& chart) {
  Drawing drawing =
      chart_drawing(chart, kTop + kRowHeight * static_cast<double>(chart.rows.size()) + kBottom);
  std::vector<double> values;
  double left = 60;
  for (const SpreadRow& row : chart.rows) {
    values.insert(values.end(), row.values.begin(), row.values.end());
    left = std::max(left, text_width(row.name) + 20);
  }
  std::erase_if(values, [](double value) { return !(value >= 0.0); });
  if (values.empty()) return drawing;
  left = std::min(left, chart.width / 3);
  const Axis axis = Axis::around(chart.spacing, values, left, chart.width - kRight);
  const double bottom = drawing.height - kBottom;
  for (const double tick : axis.ticks()) {
    const double x = axis.at(tick);
    draw_path(drawing.content, "grid", move_to(x, kTop) + "V" + coordinate(bottom));
    draw_label(drawing.content, {.x = x, .y = bottom + 15, .text = axis.text(tick)});
  }
  if (const std::optional<double> place = axis.break_place())
    draw_horizontal_break(drawing.content, *place, bottom + 4);
  draw_label(drawing.content, {.x = (left + chart.width) / 2,
                               .y = drawing.height - 5,
                               .text = axis.titled(chart.values_title)});
  drawing.pane_width = left - 8;  // the label of the axis's first tick reaches over its place
  for (size_t i = 0; i < chart.rows.size(); ++i)
    draw_row(drawing, axis, chart.rows[i], kTop + kRowHeight * (static_cast<double>(i) + 0.5),
             left);
  return drawing;
}

}  // namespace kvcal::report
