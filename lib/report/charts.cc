#include "report/charts.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/utf8.h"
#include "report/markup.h"

namespace kvcal::report {
namespace {

/// Pixels between the edges of a chart and what it draws.
struct Margins {
  double left, right, top, bottom;
};

constexpr Margins kSeries{.left = 56, .right = 10, .top = 24, .bottom = 34};

/// The geometry of a chart.
struct SeriesPlan {
  const SeriesChart& chart;
  Axis axis;

  double place_width() const {
    return (chart.width - kSeries.left - kSeries.right) / static_cast<double>(chart.places.size());
  }
  double x(size_t i) const { return kSeries.left + place_width() * (static_cast<double>(i) + 0.5); }
};

bool is_drawn(const SeriesChart& chart, double value) {
  return std::isfinite(value) &&
         (value > 0.0 || (value == 0.0 && chart.spacing == Spacing::kLinear));
}

/// The value's standard error; 0 where none is known.
double error_at(const Series& series, size_t i) {
  return i < series.errors.size() && std::isfinite(series.errors[i]) ? series.errors[i] : 0.0;
}

void draw_values(Markup& content, const SeriesPlan& plan, const Series& series) {
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

void draw_frame(Drawing& drawing, const SeriesPlan& plan) {
  const SeriesChart& chart = plan.chart;
  Markup& content = drawing.content;
  draw_value_grid(content, plan.axis, kSeries.left, chart.width - kSeries.right);
  draw_value_numbers(drawing.pane, plan.axis, kSeries.left);
  draw_label(drawing.pane, {0, 11, plan.axis.titled(chart.values_title), "start"});
  drawing.pane_width = kSeries.left;
  double widest = 28;
  for (const std::string& place : chart.places) widest = std::max(widest, text_width(place));
  const auto step = static_cast<size_t>(std::ceil((widest + 6) / plan.place_width()));
  for (size_t i = 0; i < chart.places.size(); i += step)
    draw_label(content, {plan.x(i), chart.height - kSeries.bottom + 16, chart.places[i]});
  draw_label(content, {(kSeries.left + chart.width) / 2, chart.height - 3, chart.places_title});
}

constexpr double kRowHeight = 30;
constexpr Margins kSpread{.left = 60, .right = 14, .top = 8, .bottom = 38};

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
  draw_label(drawing.pane, {left - 10, y + 4, row.name, "end", "name"});
  const std::string ticks = ticks_path(axis, row.values, y);
  if (ticks.empty()) return;
  draw_path(content, row.css_class + " ticks", ticks);
  constexpr size_t kLeastOfBox = 5;  // of fewer the ticks say all
  if (row.values.size() < kLeastOfBox) return;
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

constexpr Margins kScatter{.left = 60, .right = 14, .top = 26, .bottom = 40};
constexpr double kMarkSize = 8, kLabelHeight = 13, kLabelGap = 14, kNear = 24;
constexpr size_t kMostLabelCharacters = 48;

/// The place of a drawn point, and its label.
struct Place {
  const ScatterPoint* point = nullptr;
  double x = 0, y = 0;
  double low = 0, high = 0;  ///< ends of the error bar
  double label_x = 0, label_y = 0;
  bool has_label = false, is_label_left = false;
};

struct ScatterPlan {
  const ScatterChart& chart;
  Axis x, y;
  std::vector<Place> places;  ///< in the order of the points
};

std::string shown_label(const ScatterPoint& point) {
  std::string shown;
  size_t characters = 0;
  for (const char c : point.label) {
    if (!utf8::is_tail(c) && ++characters > kMostLabelCharacters) return shown + "…";
    shown += c;
  }
  return shown;
}

ScatterPlan plan_of(const ScatterChart& chart) {
  std::vector<double> xs, ys;
  for (const ScatterPoint& point : chart.points) {
    xs.push_back(point.x);
    for (const double y : {point.y - point.y_error, point.y, point.y + point.y_error})
      if (y > 0.0 || y == point.y) ys.push_back(y);
  }
  if (chart.level) ys.push_back(chart.level->y);
  ScatterPlan plan{
      chart,
      Axis::around(chart.x_spacing, xs, kScatter.left + 16, chart.width - kScatter.right),
      Axis::around(chart.y_spacing, ys, chart.height - kScatter.bottom, kScatter.top),
      {}};
  for (const ScatterPoint& point : chart.points)
    plan.places.push_back({.point = &point,
                           .x = plan.x.at(point.x),
                           .y = plan.y.at(point.y),
                           .low = plan.y.at(std::max(0.0, point.y - point.y_error)),
                           .high = plan.y.at(point.y + point.y_error)});
  return plan;
}

/// Places by height, the lowest value (the largest y) first; equals in their order.
std::vector<Place*> by_height(std::vector<Place>& places) {
  std::vector<Place*> order;
  for (Place& place : places) order.push_back(&place);
  std::ranges::stable_sort(order, std::ranges::greater(), &Place::y);
  return order;
}

/// Marks on the same spot stand beside each other.
void spread_marks(std::vector<Place>& places, double right) {
  std::vector<const Place*> settled;
  for (Place* place : by_height(places)) {
    const auto covers = [&](const Place* other) {
      return std::hypot(other->x - place->x, other->y - place->y) < kMarkSize;
    };
    while (std::ranges::any_of(settled, covers) && place->x + kMarkSize < right)
      place->x += kMarkSize;
    settled.push_back(place);
  }
}

/// Heights as near to the wanted ones (rising) as a distance of kLabelHeight between neighbours
/// allows: where they are too near, a run of them is centred on what they want.
std::vector<double> settled_heights(const std::vector<double>& wanted) {
  struct Run {
    double sum = 0;
    size_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Run> runs;  // of wanted heights less the room of the labels before
  for (size_t i = 0; i < wanted.size(); ++i) {
    runs.push_back({wanted[i] - kLabelHeight * static_cast<double>(i), 1});
    while (runs.size() > 1 && runs[runs.size() - 2].mean() > runs.back().mean()) {
      const Run last = runs.back();
      runs.pop_back();
      runs.back().sum += last.sum;
      runs.back().count += last.count;
    }
  }
  std::vector<double> heights;
  for (const Run& run : runs)
    for (size_t i = 0; i < run.count; ++i)
      heights.push_back(run.mean() + kLabelHeight * static_cast<double>(heights.size()));
  return heights;
}

/// Labels of points of about the same x: a column beside them, each as near to its mark as the
/// others let it. Those that find no place stay without. The column is given from the top down.
void place_labels(const ScatterPlan& plan, std::vector<Place*> column, double room_right) {
  std::erase_if(column, [](const Place* place) { return place->point->label.empty(); });
  const double top = kScatter.top + 4, bottom = plan.chart.height - kScatter.bottom;
  const auto most = static_cast<size_t>((bottom - top) / kLabelHeight) + 1;
  // If there are too many, the points at the bottom keep their labels: they are the better ones.
  if (column.size() > most)
    column.erase(column.begin(), column.end() - static_cast<std::ptrdiff_t>(most));
  double rightmost = 0, leftmost = plan.chart.width, widest = 0;
  std::vector<double> wanted;
  for (const Place* place : column) {
    rightmost = std::max(rightmost, place->x);
    leftmost = std::min(leftmost, place->x);
    widest = std::max(widest, text_width(shown_label(*place->point)));
    wanted.push_back(place->y);
  }
  const bool is_left = rightmost + kLabelGap + widest > room_right && leftmost - kLabelGap > widest;
  const std::vector<double> heights = settled_heights(wanted);
  for (size_t i = 0; i < column.size(); ++i) {
    const auto before = static_cast<double>(i), after = static_cast<double>(column.size() - 1 - i);
    column[i]->has_label = true;
    column[i]->is_label_left = is_left;
    column[i]->label_x = is_left ? leftmost - kLabelGap : rightmost + kLabelGap;
    column[i]->label_y =
        std::clamp(heights[i], top + kLabelHeight * before, bottom - kLabelHeight * after);
  }
}

void place_all_labels(ScatterPlan& plan) {
  std::vector<Place*> order = by_height(plan.places);
  std::ranges::stable_sort(order, {},
                           [&](const Place* place) { return plan.x.at(place->point->x); });
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() &&
           plan.x.at(order[end]->point->x) - plan.x.at(order[begin]->point->x) < kNear)
      ++end;
    std::vector<Place*> column(order.begin() + static_cast<std::ptrdiff_t>(begin),
                               order.begin() + static_cast<std::ptrdiff_t>(end));
    std::ranges::stable_sort(column, {}, &Place::y);
    const double room = end < order.size() ? order[end]->x - kMarkSize : plan.chart.width;
    place_labels(plan, column, room);
    begin = end;
  }
}

void draw_axes(Drawing& drawing, const ScatterPlan& plan) {
  const ScatterChart& chart = plan.chart;
  Markup& content = drawing.content;
  const double bottom = chart.height - kScatter.bottom;
  const double right = chart.width - kScatter.right;
  draw_value_grid(content, plan.y, kScatter.left, right);
  draw_value_numbers(drawing.pane, plan.y, kScatter.left);
  drawing.pane_width = kScatter.left;
  draw_path(content, "axis",
            move_to(kScatter.left, kScatter.top) + "V" + coordinate(bottom + 6) + "H" +
                coordinate(right));
  for (const double tick : plan.x.ticks()) {
    const double x = plan.x.at(tick);
    draw_path(content, "axis", move_to(x, bottom + 6) + "v4");
    const std::string text = chart.x_text ? chart.x_text(tick) : plan.x.text(tick);
    draw_label(content, {x, bottom + 21, text});
  }
  if (const std::optional<double> place = plan.x.break_place())
    draw_horizontal_break(content, *place - 10, bottom + 10);
  draw_label(content,
             {(kScatter.left + chart.width) / 2, chart.height - 4, plan.x.titled(chart.x_title)});
  draw_label(drawing.pane, {0, 12, plan.y.titled(chart.y_title), "start"});
}

void draw_front(Markup& content, const ScatterPlan& plan) {
  std::string path;
  for (const size_t i : plan.chart.front) {
    const ScatterPoint& point = plan.chart.points[i];
    const std::string x = coordinate(plan.x.at(point.x)), y = coordinate(plan.y.at(point.y));
    if (path.empty())
      path = "M" + x + " " + y;
    else
      path += plan.chart.has_steps ? "H" + x + "V" + y : "L" + x + " " + y;
  }
  if (plan.chart.front.size() > 1) draw_path(content, "front", path);
}

void draw_chosen_level(Markup& content, const ScatterPlan& plan) {
  if (!plan.chart.level) return;
  const double y = plan.y.at(plan.chart.level->y);
  draw_level(content, "reference line", kScatter.left, plan.chart.width - kScatter.right, y);
  draw_label(content,
             {plan.chart.width - kScatter.right, y - 5, plan.chart.level->words, "end", "name"});
}

void draw_place(Markup& content, const Place& place) {
  const ScatterPoint& point = *place.point;
  content.open("g", {{"class", "point"}, {"data-key", point.key}});
  if (place.has_label) {
    const double end = place.label_x + (place.is_label_left ? 3 : -3);
    if (std::abs(end - place.x) > kLabelGap || std::abs(place.label_y - place.y) > 5)
      draw_path(
          content, "leader",
          move_to(place.x, place.y) + "L" + coordinate(end) + " " + coordinate(place.label_y));
    draw_label(content, {place.label_x, place.label_y + 4, shown_label(point),
                         place.is_label_left ? "end" : "start", "name"});
  }
  if (point.y_error > 0.0)
    draw_path(content, point.css_class + " deviation",
              error_bar({place.x, place.y}, place.low, place.high));
  if (point.is_chosen)
    content.leaf(
        "circle",
        {{"class", "ring"}, {"cx", coordinate(place.x)}, {"cy", coordinate(place.y)}, {"r", "7"}});
  draw_mark(content, point.mark, point.css_class, {place.x, place.y, point.words});
  content.close("g");
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
  const SeriesPlan plan{
      chart, Axis::around(chart.spacing, values, chart.height - kSeries.bottom, kSeries.top)};
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

Markup series_figure(const SeriesChart& chart, const std::string& mark_id, Figure figure) {
  figure.drawings = legend_list(mark_id, series_legend(chart.series)).append(figure.drawings);
  return report::figure(draw_series(chart), std::move(figure));
}

std::vector<std::string> place_names(const std::vector<int64_t>& numbers) {
  std::vector<std::string> names;
  for (const int64_t number : numbers) names.push_back(std::to_string(number));
  return names;
}

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
  Drawing drawing = chart_drawing(
      chart, kSpread.top + kRowHeight * static_cast<double>(chart.rows.size()) + kSpread.bottom);
  std::vector<double> values;
  double left = kSpread.left;
  for (const SpreadRow& row : chart.rows) {
    values.insert(values.end(), row.values.begin(), row.values.end());
    left = std::max(left, text_width(row.name) + 20);
  }
  std::erase_if(values, [](double value) { return !(value >= 0.0); });
  if (values.empty()) return drawing;
  left = std::min(left, chart.width / 3);
  const Axis axis = Axis::around(chart.spacing, values, left, chart.width - kSpread.right);
  const double bottom = drawing.height - kSpread.bottom;
  for (const double tick : axis.ticks()) {
    const double x = axis.at(tick);
    draw_path(drawing.content, "grid", move_to(x, kSpread.top) + "V" + coordinate(bottom));
    draw_label(drawing.content, {x, bottom + 15, axis.text(tick)});
  }
  if (const std::optional<double> place = axis.break_place())
    draw_horizontal_break(drawing.content, *place, bottom + 4);
  draw_label(drawing.content,
             {(left + chart.width) / 2, drawing.height - 5, axis.titled(chart.values_title)});
  drawing.pane_width = left - 8;  // the label of the axis's first tick reaches over its place
  for (size_t i = 0; i < chart.rows.size(); ++i)
    draw_row(drawing, axis, chart.rows[i],
             kSpread.top + kRowHeight * (static_cast<double>(i) + 0.5), left);
  return drawing;
}

Drawing draw_scatter(const ScatterChart& chart) {
  Drawing drawing = chart_drawing(chart, chart.height);
  if (chart.points.empty()) return drawing;
  ScatterPlan plan = plan_of(chart);
  spread_marks(plan.places, chart.width - kScatter.right);
  place_all_labels(plan);
  draw_axes(drawing, plan);
  draw_chosen_level(drawing.content, plan);
  draw_front(drawing.content, plan);
  for (const Place& place : plan.places) draw_place(drawing.content, place);
  return drawing;
}

}  // namespace kvcal::report
