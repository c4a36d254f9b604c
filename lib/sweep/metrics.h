#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kvcal {

/// A number that a cell's result may have.
struct Metric {
  std::string name;  ///< key of results.json
  bool is_less_better = true;
};

/// All of them, in the order of tables.
std::span<const Metric> all_metrics();

/// The metric of that name. Throws Error with did you mean.
const Metric& metric(std::string_view name);

}  // namespace kvcal
