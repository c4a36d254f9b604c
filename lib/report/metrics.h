#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/page.h"

namespace kvcal::report {

class Metrics;

/// A number that evaluations and sweeps give, by its key in their JSON.
struct Metric {
  std::string_view key;
  const char *title, *hint;
  std::string (*text)(double value);
  bool is_column = true;        ///< of tables; what is the same in all rows is none
  std::string_view error = {};  ///< key of its standard error; empty: none is known
  bool is_less_better = true;

  /// The number, with its standard error where one is known, to the error's two digits.
  std::string text_with_error(const Metrics& values) const;
  /// Whether two numbers differ by no more than two standard errors of their difference.
  bool are_tied(const Metrics& a, const Metrics& b) const;
};

/// "fp8", or "fp8 and 2 that tie with it" where count with it have the same.
std::string named_with_ties(const std::string& name, int64_t count);

/// All that are known, in the order of tables.
std::span<const Metric> all_metrics();
/// Throws Error naming those that are known.
const Metric& find_metric(std::string_view key);

/// Numbers by key; NaN where one was not measured.
class Metrics {
 public:
  /// key: of all_metrics(), else Error. A value that is missing was not measured.
  void set(std::string_view key, std::optional<double> value);
  double at(std::string_view key) const;
  /// The standard error of a number; NaN where none was measured.
  double error_of(std::string_view key) const;

 private:
  std::map<std::string_view, double> values_;
};

/// Columns of which at least one number is known.
std::vector<const Metric*> known_metrics(std::span<const Metrics> all);
/// A column each, and a row's cells in them.
void add_columns(std::vector<Column>& columns, const std::vector<const Metric*>& metrics);
void add_cells(TableMarkup& table, const Metrics& values,
               const std::vector<const Metric*>& metrics);

}  // namespace kvcal::report
