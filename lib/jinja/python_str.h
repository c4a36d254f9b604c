#pragma once

#include <cstddef>
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
/// The code points themselves.
Vector<char32_t> code_points(Run& run, std::string_view text);
void append_code_point(Text& text, char32_t c);

/// Finds a text in others, in time that grows with their lengths and not with the product of these.
/// Source: Knuth, Morris and Pratt, "Fast Pattern Matching in Strings".
class Finder {
 public:
  /// from_end: looks for the last place. wanted is viewed.
  Finder(Run& run, std::string_view wanted, bool from_end = false);
  /// Byte offset of wanted in text, npos where there is none. Pays for what it passes.
  size_t find(std::string_view text);

 private:
  char wanted_at(size_t i) const { return wanted_[from_end_ ? wanted_.size() - 1 - i : i]; }
  void prepare();
  size_t search(std::string_view text);

  Run& run_;
  std::string_view wanted_;
  bool from_end_;
  /// [i]: how many bytes still match where i + 1 did and the next does not. Empty before the first
  /// text that may hold what is wanted.
  Vector<uint32_t> fallbacks_;
};

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

Text to_upper(Run& run, std::string_view text);
Text to_lower(Run& run, std::string_view text);
Text to_capitalized(Run& run, std::string_view text);
Text to_title(Run& run, std::string_view text);
Text swap_case(Run& run, std::string_view text);

/// A part of text without the given characters (none given: whitespace) at the chosen ends.
std::string_view stripped(Run& run, std::string_view text,
                          std::optional<std::string_view> characters, bool left, bool right);
/// The same of whitespace.
std::string_view stripped(std::string_view text, bool left = true, bool right = true);
/// Lines of text, with their ends if wanted.
Values split_lines(Run& run, std::string_view text, bool keep_ends);
/// repr(text): Python's quotes and escapes.
Text repr_of(Run& run, std::string_view text);

/// int(text, base), nothing where Python raises ValueError. Throws Error past 64 bits.
std::optional<int64_t> parse_integer(Run& run, std::string_view text, int64_t base);
/// float(text), nothing where Python raises ValueError.
std::optional<double> parse_float(Run& run, std::string_view text);

}  // namespace kvcal::jinja
