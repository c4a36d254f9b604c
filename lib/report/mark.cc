#include "report/mark.h"

#include "report/numbers.h"

namespace kvcal::report {
namespace {

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

Look look_of(size_t i) {
  constexpr size_t kClasses = 8, kMarks = 5;
  return {"s" + std::to_string(i % kClasses), static_cast<Mark>(i % kMarks)};
}

}  // namespace kvcal::report
