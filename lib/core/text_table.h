#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kvcal {

/// Rows of text in columns that are aligned to the right; the first row is the heading.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heading) { add(std::move(heading)); }
  /// Adds a row; its cells are shown as shown_text has them.
  void add(std::vector<std::string> row);
  /// The lines, each with its end. A byte counts as a column.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kvcal
