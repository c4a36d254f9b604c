#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "report/figure.h"

namespace kvcal::report {

/// A number that evaluations and sweeps give, by its key in their JSON.
struct Measure {
  std::string_view key;
  const char *title, *hint;
  std::string (*text)(double value);
  bool is_column = true;  ///< of tables; what is the same in all rows is none
};

/// All that are known, in the order of tables.
std::span<const Measure> all_measures();
/// Throws Error naming those that are known.
const Measure& find_measure(std::string_view key);

/// Numbers by key; NaN where one was not measured.
class Measures {
 public:
  Measures() = default;
  /// Those that the object has. Throws Error where one is no number.
  explicit Measures(const Json& object);
  /// key: of all_measures().
  double at(std::string_view key) const;

 private:
  std::vector<double> values_;  ///< in the order of all_measures(), or empty
};

/// Columns of which at least one number is known.
std::vector<const Measure*> known_measures(std::span<const Measures* const> all);
/// A column each, and a row's cells in them.
void add_columns(std::vector<Column>& columns, const std::vector<const Measure*>& measures);
void add_cells(TableMarkup& table, const Measures& values,
               const std::vector<const Measure*>& measures);

}  // namespace kvcal::report
