#pragma once

#include <ostream>
#include <string>
#include <utility>
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

/// A character a value, eight levels in even ratios between the least and the largest that are
/// positive, or around them where they are nearer than a factor of 2; a blank for what is not
/// positive. Blocks, or plain characters without has_unicode.
std::string sparkline(const std::vector<double>& values, bool has_unicode);

/// The least and the largest that are positive; both NaN for none.
std::pair<double, double> positive_range(const std::vector<double>& values);

/// Whether the terminal shows Unicode: the locale (LC_ALL, LC_CTYPE or LANG) is one of UTF-8.
bool has_unicode();

}  // namespace kvcal
