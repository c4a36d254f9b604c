#include "report/legend.h"

#include "core/utf8.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

constexpr double kSampleWidth = 28, kSampleHeight = 16, kLine = 20, kGap = 22;

/// The outline of a mark around 0, 0.
std::string_view outline_of(Mark mark) {
  switch (mark) {
    case Mark::kTriangle:
      return "m0-4l4 7h-8z";
    case Mark::kDiamond:
      return "m0-4.2l4.2 4.2l-4.2 4.2l-4.2-4.2z";
    case Mark::kCross:
      return "m-3.2-3.2l6.4 6.4m0-6.4l-6.4 6.4";
    case Mark::kSquare:
      return "m-3-3h6v6h-6z";
    default:
      return "m-5-1h10v2h-10z";
  }
}

}  // namespace

void draw_mark(Markup& content, Mark mark, const std::string& css_class, const MarkPlace& place) {
  const std::string x = coordinate(place.x), y = coordinate(place.y);
  const std::string tag = mark == Mark::kCircle ? "circle" : "path";
  const std::string kind = mark == Mark::kDash    ? " mark dash"
                           : mark == Mark::kCross ? " mark cross"
                                                  : " mark";
  if (mark == Mark::kCircle)
    content.open(tag, {{"class", css_class + kind}, {"cx", x}, {"cy", y}, {"r", "3"}});
  else
    content.open(tag, {{"class", css_class + kind},
                       {"d", "M" + x + " " + y + std::string(outline_of(mark))}});
  if (!place.words.empty()) content.element("title", place.words);
  content.close(tag);
}

std::string error_bar(const MarkPlace& place, double low, double high) {
  const std::string serif = "h6";
  return move_to(place.x, low) + "V" + coordinate(high) + move_to(place.x - 3, low) + serif +
         move_to(place.x - 3, high) + serif;
}

std::string with_error(double value, double error) {
  return number_text(value) + (error > 0.0 ? " ± " + number_text(error, 2) : std::string());
}

Look look_of(size_t i) {
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
    list.open("li").append(svg({.id = id + std::to_string(i),
                                .title = legend[i].words,
                                .description = "how it is drawn",
                                .width = kSampleWidth,
                                .height = kSampleHeight,
                                .css_class = "",
                                .content = legend[i].sample}));
    list.text(legend[i].words).close("li");
  }
  return list.close("ul");
}

Drawing heading_drawing(const std::string& id, const std::string& words) {
  Drawing drawing{.id = id,
                  .title = words,
                  .description = "a heading",
                  .width = text_width(words) + 20,
                  .height = 14,
                  .css_class = "heading"};
  draw_label(drawing.content,
             {.x = 0, .y = 11, .text = words, .anchor = "start", .css_class = "name"});
  return drawing;
}

Drawing legend_drawing(const std::string& id, const Legend& legend, double width) {
  Drawing drawing{.id = id,
                  .title = "Legend",
                  .description = "What marks, lines and hatchings stand for.",
                  .width = width,
                  .height = 0,
                  .css_class = "legend-drawing"};
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
    draw_label(drawing.content, {.x = kSampleWidth + 6,
                                 .y = 12,
                                 .text = entry.words,
                                 .anchor = "start",
                                 .css_class = "name"});
    drawing.content.close("g");
    x += needed + kGap;
  }
  drawing.height = legend.empty() ? 0 : y + kLine;
  return drawing;
}

}  // namespace kvcal::report
