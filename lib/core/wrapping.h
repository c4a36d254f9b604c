#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace kvcal {

// The one place where text is parted into rows: tables, pages of help, and lines on a terminal.

/// Columns that text takes on a terminal: two for what may be wide, none for half of a character.
size_t columns_of(std::string_view text);

/// The text in rows of at most `columns`, the first of at most `first`. Rows are parted at spaces
/// between words, but not between a number and its unit ("35.5 kB"); a word that is longer than a
/// row stays whole. Spaces at which rows are parted belong to none; those at the beginning of the
/// text to the first. At least one row.
std::vector<std::string_view> word_rows(std::string_view text, size_t columns, size_t first);
inline std::vector<std::string_view> word_rows(std::string_view text, size_t columns) {
  return word_rows(text, columns, columns);
}

}  // namespace kvcal
