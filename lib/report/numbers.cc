#include "report/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

namespace kvcal::report {
namespace {

constexpr const char* kNone = "–";

std::string digits(double value, std::chars_format format, int precision) {
  char text[64];
  return {text, std::to_chars(text, std::end(text), value, format, precision).ptr};
}

}  // namespace

std::string number_text(double value, int significant) {
  return std::isfinite(value) ? digits(value, std::chars_format::general, significant) : kNone;
}

std::string share_text(double fraction) {
  if (!std::isfinite(fraction)) return kNone;
  if (fraction == 0.0) return "0";
  return digits(100.0 * fraction, std::chars_format::general, 2 + (fraction > 0.0999)) + " %";
}

std::string range_text(const std::vector<float>& values) {
  if (values.empty()) return kNone;
  const auto [least, largest] = std::ranges::minmax(values);
  if (least == largest) return number_text(static_cast<double>(least));
  return number_text(static_cast<double>(least)) + " – " +
         number_text(static_cast<double>(largest));
}

std::string coordinate(double value) {
  std::string text = digits(value, std::chars_format::fixed, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

}  // namespace kvcal::report
