#include "table.h"

#include <algorithm>

namespace kvcal {

void Table::print(std::ostream& out) const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += (i ? "  " : "") + std::string(widths[i] - row[i].size(), ' ') + row[i];
    out << line << '\n';
  }
}

}  // namespace kvcal
