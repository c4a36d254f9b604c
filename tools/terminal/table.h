#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/number_text.h"

namespace kvcal {

/// Rows of text in aligned columns; numbers to the right, the first row is the heading.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) { rows_.push_back(std::move(heading)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kvcal
