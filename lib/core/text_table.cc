#include "core/text_table.h"

#include <algorithm>

#include "core/shown_text.h"

namespace kvcal {

void TextTable::add(std::vector<std::string> row) {
  std::ranges::transform(row, row.begin(), shown_text);
  rows_.push_back(std::move(row));
}

std::string TextTable::text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i)
      text += (i ? "  " : "") + std::string(widths[i] - row[i].size(), ' ') + row[i];
    text += '\n';
  }
  return text;
}

}  // namespace kvcal
