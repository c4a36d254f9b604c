#include "report/axis.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/text.h"
#include "core/utf8.h"
#include "report/markup.h"

namespace kvcal::report {
namespace {

constexpr double kZeroBand = 26;  ///< pixels between 0 and the least of a logarithmic axis

constexpr double kSampleWidth = 28, kLine = 20, kGap = 22;

/// Outlines around 0, 0, by Mark.
constexpr std::string_view kOutlines[] = {"",
                                          "m-3-3h6v6h-6z",
                                          "m0-4l4 7h-8z",
                                          "m0-4.2l4.2 4.2l-4.2 4.2l-4.2-4.2z",
                                          "m-3.2-3.2l6.4 6.4m0-6.4l-6.4 6.4",
                                          "m-5-1h10v2h-10z"};

}  // namespace

Axis::Axis(Spacing spacing, double least, double largest, double begin, double end)
    : spacing_(spacing), least_(least), largest_(largest), begin_(begin), end_(end) {
  if (spacing == Spacing::kLog) {
    largest_ = std::max(largest, least * 1.0001);
  } else if (!(largest > least)) {
    const double room = std::max(1e-9, std::abs(least) * 0.01);
    least_ -= room;
    largest_ += room;
  }
}

Axis Axis::around(Spacing spacing, const std::vector<double>& values, double begin, double end) {
  const bool is_log = spacing == Spacing::kLog;
  double least = std::numeric_limits<double>::infinity(), largest = 0.0;
  bool has_zero = false;
  for (const double value : values) {
    if (!std::isfinite(value) || value < 0.0) continue;
    if (is_log && value == 0.0) {
      has_zero = true;
      continue;
    }
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
  if (least > largest) least = largest = 1.0;
  if (is_log) {
    const double room = std::max(1.15, std::pow(largest / least, 0.06));
    const double first = has_zero ? begin + std::copysign(kZeroBand, end - begin) : begin;
    Axis axis(spacing, least / room, largest * room, first, end);
    axis.has_zero_ = has_zero;
    axis.zero_ = begin;
    return axis;
  }
  const double room = largest > least ? 0.06 * (largest - least) : std::max(1e-9, 0.02 * largest);
  return {spacing, std::max(0.0, least - room), largest + room, begin, end};
}

double Axis::at(double value) const {
  if (has_zero_ && value == 0.0) return zero_;
  const double inside = std::clamp(value, least_, largest_);
  const double part = spacing_ == Spacing::kLog
                          ? std::log(inside / least_) / std::log(largest_ / least_)
                          : (inside - least_) / (largest_ - least_);
  return begin_ + (end_ - begin_) * part;
}

std::vector<double> Axis::ticks(int most) const {
  std::vector<double> ticks;
  if (spacing_ == Spacing::kLinear) return even_ticks(most);
  const int first = static_cast<int>(std::floor(std::log10(least_)));
  const int last = static_cast<int>(std::ceil(std::log10(largest_)));
  const int step = std::max(1, (last - first + most - 1) / most);
  for (int decade = first; decade <= last; decade += step)
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double value = digit * std::pow(10.0, decade);
      if (digit != 1.0 && last - first > 3) continue;
      if (value >= least_ * 0.999 && value <= largest_ * 1.001) ticks.push_back(value);
    }
  if (ticks.size() < 2) ticks = even_ticks(4);
  if (has_zero_) ticks.insert(ticks.begin(), 0.0);
  return ticks;
}

std::vector<double> Axis::even_ticks(int most) const {
  const double wanted = (largest_ - least_) / std::min(most, 4);
  const double decade = std::pow(10.0, std::floor(std::log10(wanted)));
  const double step = decade * (wanted < 2 * decade ? 1 : wanted < 5 * decade ? 2 : 5);
  std::vector<double> ticks;
  for (double i = std::ceil(least_ / step); i * step <= largest_; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string Axis::text(double tick) const {
  return spacing_ == Spacing::kLog && tick > 0.0 ? tick_text(tick) : number_text(tick);
}

std::string Axis::titled(const std::string& title) const {
  return spacing_ == Spacing::kLog ? title + (title.empty() ? "" : ", ") + "logarithmic" : title;
}

std::optional<double> Axis::break_place() const {
  if (has_zero_) return std::midpoint(zero_, begin_);
  if (spacing_ == Spacing::kLinear && least_ > 0.0) return begin_;
  return std::nullopt;
}

void draw_value_grid(Markup& content, const Axis& axis, double left, double right) {
  for (const double tick : axis.ticks()) draw_level(content, "grid", left, right, axis.at(tick));
}

void draw_value_numbers(Markup& content, const Axis& axis, double left) {
  for (const double tick : axis.ticks())
    draw_label(content, {left - 6, axis.at(tick) + 4, axis.text(tick), "end"});
  if (const std::optional<double> place = axis.break_place())
    draw_path(content, "axis break",
              move_to(left - 5, *place + 1) + "l8 -4" + move_to(left - 5, *place + 5) + "l8 -4");
}

void draw_horizontal_break(Markup& content, double x, double y) {
  draw_path(content, "axis break", move_to(x - 2, y) + "l4 -8" + move_to(x + 2, y) + "l4 -8");
}

std::string tick_text(double value) {
  const double exponent = std::round(std::log10(value));
  const bool is_power = std::abs(value / std::pow(10.0, exponent) - 1.0) < 1e-9;
  if (std::abs(exponent) <= 3.0 || !is_power) return number_text(value);
  return "1e" + number_text(exponent);
}

void draw_mark(Markup& content, Mark mark, const std::string& css_class, const MarkPlace& place) {
  const std::string x = coordinate(place.x), y = coordinate(place.y);
  const std::string tag = mark == Mark::kCircle ? "circle" : "path";
  const std::string kind = mark == Mark::kDash    ? " mark dash"
                           : mark == Mark::kCross ? " mark cross"
                                                  : " mark";
  if (mark == Mark::kCircle)
    content.open(tag, {{"class", css_class + kind}, {"cx", x}, {"cy", y}, {"r", "3"}});
  else
    content.open(tag,
                 {{"class", css_class + kind},
                  {"d", "M" + x + " " + y + std::string(kOutlines[static_cast<size_t>(mark)])}});
  if (!place.words.empty()) content.element("title", place.words);
  content.close(tag);
}

std::string error_bar(const MarkPlace& place, double low, double high) {
  const std::string serif = "h6";
  return move_to(place.x, low) + "V" + coordinate(high) + move_to(place.x - 3, low) + serif +
         move_to(place.x - 3, high) + serif;
}

std::string with_error(double value, double error) {
  if (!(error > 0.0) || !std::isfinite(value)) return number_text(value);
  // As many places as the error's second digit has.
  const int places = 1 - static_cast<int>(std::floor(std::log10(error)));
  constexpr int kMostPlaces = 6;
  if (places > kMostPlaces) return number_text(value, 3) + " ± " + number_text(error, 2);
  const std::string format = "%." + std::to_string(std::max(0, places)) + "f";
  return fixed(format.c_str(), value) + " ± " + fixed(format.c_str(), error);
}

MarkStyle look_of(size_t i) {
  constexpr size_t kClasses = 8, kMarks = 5;
  return {"s" + std::to_string(i % kClasses), static_cast<Mark>(i % kMarks)};
}

double text_width(std::string_view text) {
  return 6.2 * static_cast<double>(utf8::length(text));
}

Markup legend_list(const std::string& id, const Legend& legend) {
  Markup list;
  list.open("ul", {{"class", "legend"}});
  for (size_t i = 0; i < legend.size(); ++i) {
    Drawing drawing =
        drawing_of(id + std::to_string(i), legend[i].words, "how it is drawn", 28, 16, "");
    drawing.content = legend[i].sample;
    list.open("li").append(svg(drawing)).text(legend[i].words).close("li");
  }
  return list.close("ul");
}

Drawing heading_drawing(const std::string& id, const std::string& words) {
  Drawing drawing = drawing_of(id, words, "a heading", text_width(words) + 20, 14, "heading");
  draw_label(drawing.content, {0, 11, words, "start", "name"});
  return drawing;
}

Drawing legend_drawing(const std::string& id, const Legend& legend, double width) {
  Drawing drawing = drawing_of(id, "Legend", "What marks, lines and hatchings stand for.", width, 0,
                               "legend-drawing");
  double x = 0, y = 0;
  for (const LegendEntry& entry : legend) {
    const double needed = kSampleWidth + 6 + text_width(entry.words);
    if (x > 0 && x + needed > width) {
      x = 0;
      y += kLine;
    }
    drawing.content.open("g",
                         {{"transform", "translate(" + coordinate(x) + " " + coordinate(y) + ")"}});
    drawing.content.append(entry.sample);
    draw_label(drawing.content, {kSampleWidth + 6, 12, entry.words, "start", "name"});
    drawing.content.close("g");
    x += needed + kGap;
  }
  drawing.height = legend.empty() ? 0 : y + kLine;
  return drawing;
}

}  // namespace kvcal::report
