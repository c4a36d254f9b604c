#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/utf8.h"

namespace kvcal::jinja {

/// Python's str over UTF-8: positions and lengths count code points. All texts given to these
/// functions are valid UTF-8, which is checked where texts enter. Source: CPython,
/// Objects/unicodeobject.c.

/// The code point at offset, which moves behind it.
char32_t next_code_point(std::string_view text, size_t& offset);
/// The code point that ends at offset, which moves before it.
char32_t previous_code_point(std::string_view text, size_t& offset);
inline int64_t count_code_points(std::string_view text) {
  return static_cast<int64_t>(utf8::length(text));
}
/// Byte offset of the code point at index; the text's size when index is at or past its end.
size_t byte_offset(std::string_view text, int64_t index);
/// The code points themselves.
std::vector<char32_t> code_points(std::string_view text);

bool is_space(char32_t c);       ///< str.isspace, and \s of re
bool is_line_break(char32_t c);  ///< where str.splitlines cuts
bool is_printable(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_alnum(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_name_start(char32_t c);
bool is_name_part(char32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_capitalized(std::string_view text);
std::string to_title(std::string_view text);
std::string swap_case(std::string_view text);

/// A part of text without the given characters (none given: whitespace) at the chosen ends.
std::string_view stripped(std::string_view text, std::optional<std::string_view> characters,
                          bool left, bool right);
/// Lines of text, with their ends if wanted.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// repr(text): Python's quotes and escapes.
std::string repr_of(std::string_view text);

/// int(text, base), nothing where Python raises ValueError. Throws Error past 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
/// float(text), nothing where Python raises ValueError.
std::optional<double> parse_float(std::string_view text);

}  // namespace kvcal::jinja
