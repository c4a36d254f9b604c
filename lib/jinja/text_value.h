#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/utf8.h"
#include "jinja/value.h"

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

/// Byte offsets at which wanted, which is not empty, stands in text without overlaps: at most limit
/// of them (a negative limit means all), the first ones or, with from_end, the last ones, last
/// first. Takes time that grows with the lengths of both and not with their product.
std::vector<size_t> places_of(Run& run, std::string_view text, std::string_view wanted,
                              int64_t limit = -1, bool from_end = false);
/// The first place, or with from_end the last, also of an empty text.
std::optional<size_t> place_of(Run& run, std::string_view text, std::string_view wanted,
                               bool from_end = false);
/// str.count
int64_t count_occurrences(Run& run, std::string_view text, std::string_view wanted);

bool is_space(char32_t c);  ///< str.isspace, and \s of re
bool is_printable(char32_t c);
bool is_alpha(char32_t c);
/// Throws Error for a character that is a number but no decimal: Python calls some of them digits.
bool is_digit(char32_t c);
bool is_alnum(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_name_start(char32_t c);
bool is_name_part(char32_t c);

/// Whether text has cased letters, and all of them are of the wanted case.
bool has_case(std::string_view text, bool (*wanted)(char32_t), bool (*unwanted)(char32_t));

enum class Casing {
  kUpper,
  kLower,
  kCapitalized,  ///< the first character upper case, the others lower
  kTitle,        ///< str.title: the first of each run of letters
  kTitleWords,   ///< the filter title: the first behind whitespace and any of -({[<
};
Text recased(Run& run, std::string_view text, Casing casing);

/// A part of text without the given characters (none given: whitespace) at the chosen ends.
std::string_view stripped(Run& run, std::string_view text,
                          std::optional<std::string_view> characters, bool left, bool right);
/// The same of whitespace.
std::string_view stripped(std::string_view text, bool left = true, bool right = true);
/// str.split and str.rsplit; no separator means runs of whitespace, a negative limit means none.
Values split_text(Run& run, std::string_view text, std::optional<std::string_view> separator,
                  int64_t limit = -1, bool from_end = false);
/// Lines of text, with their ends if wanted.
Values split_lines(Run& run, std::string_view text, bool keep_ends);
/// str.replace; a negative count means all.
Text replaced(Run& run, std::string_view text, std::string_view old, std::string_view with,
              int64_t count);
/// str.ljust '<', rjust '>' and center '^'.
Text justified(Run& run, std::string_view text, int64_t width, std::string_view fill, char align);

/// Appends repr(text): Python's quotes and escapes.
void append_repr(Text& out, std::string_view text);
/// repr(text), cut to the length of a message.
std::string repr_of(std::string_view text);

/// An index of at most nine decimal digits; nothing for another text.
std::optional<int64_t> short_index(std::string_view text);
/// int(text, base), nothing where Python raises ValueError. Throws Error past 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
/// float(text), nothing where Python raises ValueError.
std::optional<double> parse_float(std::string_view text);

}  // namespace kvcal::jinja
