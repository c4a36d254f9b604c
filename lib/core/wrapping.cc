#include "core/wrapping.h"

#include <algorithm>

namespace kvcal {
namespace {

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

/// Two for characters from U+1100 on, which may be wide, but for the blocks of drawings and
/// punctuation (U+2000 to U+2BFF), which are not.
size_t columns_at(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (!begins_character(text[at])) return 0;
  if (first < 0xe1 ||
      (first == 0xe2 && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xb0))
    return 1;
  return 2;
}

/// Whether the space in text at `at` parts words, and not a number from its unit.
bool parts_words(std::string_view text, size_t at) {
  constexpr size_t kLongestUnit = 3;
  const size_t end = std::min(text.find(' ', at + 1), text.size());
  return at == 0 || text[at - 1] < '0' || text[at - 1] > '9' || end - at - 1 > kLongestUnit;
}

/// The end of a row that begins at `begin`: the last space behind its first word that leaves at
/// most `columns` before it, else the first that parts words, else the end of the text.
size_t row_end(std::string_view text, size_t begin, size_t columns) {
  const size_t first_word = std::min(text.find_first_not_of(' ', begin), text.size());
  size_t used = 0, space = text.npos;
  for (size_t at = begin; at < text.size(); ++at) {
    const bool parts = text[at] == ' ' && at > first_word && parts_words(text, at);
    if (parts && used <= columns) space = at;
    used += columns_at(text, at);
    if (used > columns && space != text.npos) return space;
    if (parts && used > columns) return at;
  }
  return text.size();
}

}  // namespace

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size(); ++at) columns += columns_at(text, at);
  return columns;
}

std::vector<std::string_view> word_rows(std::string_view text, size_t columns, size_t first) {
  std::vector<std::string_view> rows;
  for (size_t begin = 0; begin < text.size() || rows.empty();) {
    const size_t end = row_end(text, begin, rows.empty() ? first : columns);
    const std::string_view row = text.substr(begin, end - begin);
    rows.push_back(row.substr(0, row.find_last_not_of(' ') + 1));
    begin = std::min(text.find_first_not_of(' ', end), text.size());
  }
  return rows;
}

}  // namespace kvcal
