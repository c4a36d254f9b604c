#include "core/text_table.h"

#include <algorithm>

#include "core/shown_text.h"

namespace kvcal {

std::string TextTable::text() const {
  std::vector<size_t> widths;
  std::vector<std::vector<std::string>> rows = rows_;
  for (auto& row : rows) {
    std::ranges::transform(row, row.begin(), shown_text);
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      text += (i ? "  " : "") + std::string(widths[i] - row[i].size(), ' ') + row[i];
    text += '\n';
  }
  return text;
}

}  // namespace kvcal
