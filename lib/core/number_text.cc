#include "core/number_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "core/error.h"

namespace kvcal {

std::string fixed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string short_float(double value) {
  return fixed("%.6g", value);
}

std::string percent(double fraction) {
  if (fraction == 0.0) return "0";
  return fixed("%.3g %%", 100.0 * fraction);
}

std::string byte_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000.0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000.0;
    ++unit;
  }
  return fixed(unit == 0 ? "%.0f " : "%.1f ", bytes) + kUnits[unit];
}

std::string range_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[begin]);
    if (end > begin + 1) text += "-" + std::to_string(numbers[end - 1]);
    begin = end;
  }
  return text;
}

std::string layer_range_text(const std::vector<int64_t>& layers) {
  return (layers.size() == 1 ? "layer " : "layers ") + range_text(layers);
}

double parse_fraction(std::string_view text) {
  constexpr double kMost = 1e6;  // more is a slip
  const bool is_percent = text.ends_with('%');
  const std::string_view digits = is_percent ? text.substr(0, text.size() - 1) : text;
  double value = 0.0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || !std::isfinite(value) ||
      value < 0.0 || value > kMost)
    fail("'", text, "' is no fraction; expected a number from 0 to 1000000, such as 0.005 or 0.5%");
  return is_percent ? value / 100.0 : value;
}

double parse_part(std::string_view text) {
  const double part = parse_fraction(text);
  if (part > 1.0)
    fail("'", text, "' is more than the whole; expected at most 1 or 100%",
         text.ends_with('%') ? "" : ", and percents have their sign");
  return part;
}

}  // namespace kvcal
