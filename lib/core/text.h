#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/utf8.h"

namespace kvcal {

/// text with a to z for A to Z; bytes beyond ASCII stay.
inline std::string ascii_lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

/// text with A to Z for a to z; bytes beyond ASCII stay.
inline std::string ascii_upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

/// text with `to` in every place of `from`.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// A key as words: "kv forward" of "kv_forward".
inline std::string key_words(const std::string& key) {
  return replaced(key, "_", " ");
}

/// "1 sample", "3 samples".
template <class Count>
std::string counted(Count count, std::string_view unit) {
  return std::to_string(count) + " " + std::string(unit) + (count == 1 ? "" : "s");
}

/// text without blanks and line breaks at both ends.
inline std::string_view ascii_trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

/// The parts of text between separators, which are one more than these.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size(); at += parts.back().size() + 1)
    parts.push_back(text.substr(at, std::min(text.find(separator, at), text.size()) - at));
  return parts;
}

/// Whether word is among words, which spaces separate. Allocates nothing.
inline bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

/// Joins the texts of a range with a separator; text_of(item) gives the text of an item.
template <class Items, class TextOf = std::identity>
std::string join(const Items& items, std::string_view separator, const TextOf& text_of = {}) {
  std::string joined;
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) joined += separator;
    joined += std::invoke(text_of, item);
    is_first = false;
  }
  return joined;
}

/// Formats value with a printf format: fixed("%.4f", x).
std::string fixed(const char* format, double value);
/// Formats a scale with six significant digits.
std::string short_float(double value);
/// "0.12 %", or "0" for none.
std::string percent(double fraction);
/// "269.1 MB"
std::string byte_text(double bytes);
std::string byte_text(std::integral auto bytes) {
  return byte_text(static_cast<double>(bytes));
}
/// "0-4, 6-10, 12" for ascending numbers.
std::string range_text(const std::vector<int64_t>& numbers);
/// "layer 3", or "layers 0-4, 9", for ascending numbers.
std::string layer_range_text(const std::vector<int64_t>& layers);

/// Parses "0.5%" or "0.005": a fraction from 0 to a million. Throws Error.
double parse_fraction(std::string_view text);
/// Parses a fraction of at most 1. Throws Error.
double parse_part(std::string_view text);

/// Parses "8GiB", "512 MiB", "1.5GB" or "1000000". Throws Error.
uint64_t parse_byte_size(const std::string& text);

/// Seconds as people read them: "40 s", "15 min", "2 h 30 min".
std::string time_text(double seconds);

/// Rows of text in columns to the right; the first is the heading. Over 80, words go below others.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heading) { add(std::move(heading)); }
  /// Adds a row; its cells are shown as shown_text has them.
  void add(std::vector<std::string> row);
  /// The lines, each with its end.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// Longest message, in bytes; what is longer is cut.
inline constexpr size_t kMostMessageBytes = 4096;

/// Text of a stranger as a terminal may show it, in one line. Control characters (C0, DEL, C1),
/// line separators and those that reorder text (Unicode's bidirectional formatting) are escaped as
/// in C++ and JSON, "\n" and "\u202e"; bytes that are no UTF-8 as "\x9b".
std::string shown_text(std::string_view text);

/// The same for text whose own tabs and ends of lines stay.
std::string shown_lines(std::string_view text);

/// shown_lines of at most kMostMessageBytes; says how many bytes were cut.
std::string shown_message(std::string_view text);

/// An untrusted name, quoted for a message: shortened, and as shown_text has it.
inline std::string shown_name(std::string_view name) {
  constexpr size_t kMostBytes = 200;
  const std::string_view start = name.substr(0, kMostBytes);
  const std::string text = shown_text(start.substr(0, start.size() - utf8::unfinished_size(start)));
  return "'" + text + (name.size() > kMostBytes ? "...'" : "'");
}

/// text as one word of a POSIX shell, in single quotes where it needs them.
std::string shell_word(const std::string& text);

}  // namespace kvcal
