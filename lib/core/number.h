#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/error.h"

namespace kvcal {

/// a * b for sizes that come from a file. Throws Error on overflow.
inline uint64_t checked_mul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) fail(a, " times ", b, " overflows 64 bits");
  return product;
}

/// a + b for sizes that come from a file. Throws Error on overflow.
inline uint64_t checked_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail(a, " plus ", b, " overflows 64 bits");
  return sum;
}

/// Smallest multiple of step that is at least value; neither is negative.
constexpr int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

/// Index into a model's vocabulary.
using TokenId = int32_t;

/// Whether some readers would take a number for an octal one.
inline bool has_leading_zero(std::string_view text) {
  return text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

/// Reads text as a number from least to most, which it must be from its first to its last
/// character. Infinities, NaN and what Number cannot hold are none. Returns what is wrong; empty:
/// nothing.
template <class Number>
std::string read_number(std::string_view text, Number least, Number most, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  bool is_number = error == std::errc() && stop == end && !has_leading_zero(text);
  if constexpr (std::is_floating_point_v<Number>) is_number = is_number && std::isfinite(value);
  if (is_number && value >= least && value <= most) return "";
  std::ostringstream fault;
  fault << "found '" << text << "', expected "
        << (std::is_floating_point_v<Number> ? "a number" : "an integer") << " from " << least
        << " to " << most;
  return fault.str();
}

}  // namespace kvcal
