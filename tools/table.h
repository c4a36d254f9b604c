#pragma once

#include <ostream>
#include <string>
#include <vector>

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

/// Fixed digits, as printf's format says.
std::string fixed(const char* format, double value);
/// Six significant digits, as scales are read by people.
std::string short_float(double value);
/// "0.12 %", or "0" for none.
std::string percent(double fraction);
/// "269.1 MB"
std::string byte_text(double bytes);

}  // namespace kvcal
