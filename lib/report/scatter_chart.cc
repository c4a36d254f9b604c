#include "report/scatter_chart.h"

#include <algorithm>
#include <cmath>

#include "core/utf8.h"
#include "report/legend.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

constexpr double kLeft = 60, kRight = 14, kTop = 26, kBottom = 40;
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

struct Plan {
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

Plan plan_of(const ScatterChart& chart) {
  std::vector<double> xs, ys;
  for (const ScatterPoint& point : chart.points) {
    xs.push_back(point.x);
    for (const double y : {point.y - point.y_error, point.y, point.y + point.y_error})
      if (y > 0.0 || y == point.y) ys.push_back(y);
  }
  if (chart.level) ys.push_back(chart.level->y);
  Plan plan{chart,
            Axis::around(chart.x_spacing, xs, kLeft + 16, chart.width - kRight),
            Axis::around(chart.y_spacing, ys, chart.height - kBottom, kTop),
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
void place_labels(const Plan& plan, std::vector<Place*> column, double room_right) {
  std::erase_if(column, [](const Place* place) { return place->point->label.empty(); });
  const double top = kTop + 4, bottom = plan.chart.height - kBottom;
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

void place_all_labels(Plan& plan) {
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

void draw_axes(Drawing& drawing, const Plan& plan) {
  const ScatterChart& chart = plan.chart;
  Markup& content = drawing.content;
  const double bottom = chart.height - kBottom;
  const double right = chart.width - kRight;
  draw_value_grid(content, plan.y, kLeft, right);
  draw_value_numbers(drawing.pane, plan.y, kLeft);
  drawing.pane_width = kLeft;
  draw_path(content, "axis",
            move_to(kLeft, kTop) + "V" + coordinate(bottom + 6) + "H" + coordinate(right));
  for (const double tick : plan.x.ticks()) {
    const double x = plan.x.at(tick);
    draw_path(content, "axis", move_to(x, bottom + 6) + "v4");
    const std::string text = chart.x_text ? chart.x_text(tick) : plan.x.text(tick);
    draw_label(content, {.x = x, .y = bottom + 21, .text = text});
  }
  if (const std::optional<double> place = plan.x.break_place())
    draw_horizontal_break(content, *place - 10, bottom + 10);
  draw_label(content, {.x = (kLeft + chart.width) / 2,
                       .y = chart.height - 4,
                       .text = plan.x.titled(chart.x_title)});
  draw_label(drawing.pane,
             {.x = 0, .y = 12, .text = plan.y.titled(chart.y_title), .anchor = "start"});
}

void draw_front(Markup& content, const Plan& plan) {
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

void draw_chosen_level(Markup& content, const Plan& plan) {
  if (!plan.chart.level) return;
  const double y = plan.y.at(plan.chart.level->y);
  draw_level(content, "reference line", kLeft, plan.chart.width - kRight, y);
  draw_label(content, {.x = plan.chart.width - kRight,
                       .y = y - 5,
                       .text = plan.chart.level->words,
                       .anchor = "end",
                       .css_class = "name"});
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
    draw_label(content, {.x = place.label_x,
                         .y = place.label_y + 4,
                         .text = shown_label(point),
                         .anchor = place.is_label_left ? "end" : "start",
                         .css_class = "name"});
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

Drawing draw_scatter(const ScatterChart& chart) {
  Drawing drawing = chart_drawing(chart, chart.height);
  if (chart.points.empty()) return drawing;
  Plan plan = plan_of(chart);
  spread_marks(plan.places, chart.width - kRight);
  place_all_labels(plan);
  draw_axes(drawing, plan);
  draw_chosen_level(drawing.content, plan);
  draw_front(drawing.content, plan);
  for (const Place& place : plan.places) draw_place(drawing.content, place);
  return drawing;
}

}  // namespace kvcal::report
