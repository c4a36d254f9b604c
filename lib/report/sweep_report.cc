#include "report/sweep_report.h"

#include <algorithm>
#include <set>

#include "report/json_fields.h"

namespace kvcal::report {
namespace {

bool is_measure(const std::string& key) {
  return std::ranges::any_of(all_measures(),
                             [&](const Measure& measure) { return measure.key == key; });
}

/// Keys of a cell that name a choice.
bool is_choice(const std::string& key, const Json& value) {
  static const std::set<std::string> kOwn{"id", "status", "error", "is_pareto"};
  return (value.is_string() || value.is_number_integer() || value.is_null()) &&
         !kOwn.contains(key) && !is_measure(key);
}

std::string choice_text(const Json& cell, const std::string& key) {
  const Json* value = find_field(cell, key);
  if (!value || value->is_object() || value->is_array()) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

/// Dimensions in the order in which cells first have them; those that never have a value are none.
void add_dimensions(SweepReport& report, const Json& cell) {
  for (const auto& [key, value] : cell.items())
    if (is_choice(key, value) && !value.is_null() &&
        std::ranges::find(report.dimensions, key) == report.dimensions.end())
      report.dimensions.push_back(key);
}

SweepCell read_cell(const Json& json, const std::vector<std::string>& dimensions) {
  SweepCell cell{.id = required_string(json, "id"),
                 .status = required_string(json, "status"),
                 .error = text_or_empty(json, "error"),
                 .choices = {},
                 .measures = Measures(json),
                 .is_pareto = optional_bool(json, "is_pareto").value_or(false)};
  for (const std::string& dimension : dimensions)
    cell.choices.push_back(choice_text(json, dimension));
  return cell;
}

}  // namespace

SweepReport read_sweep_report(const Json& results) {
  if (!results.is_object()) fail("found ", kind_of(results), ", expected an object");
  SweepReport report{.name = text_or_empty(results, "name"),
                     .version = text_or_empty(results, "version"),
                     .pareto_x = {},
                     .pareto_y = {},
                     .dimensions = {},
                     .cells = {}};
  if (const Json* pareto = find_field(results, "pareto"))
    in_context("pareto", [&] {
      report.pareto_x = find_measure(required_string(*pareto, "x")).key;
      report.pareto_y = find_measure(required_string(*pareto, "y")).key;
    });
  each_object(results, "cells", [&](const Json& cell) { add_dimensions(report, cell); });
  each_object(results, "cells", [&](const Json& cell) {
    report.cells.push_back(read_cell(cell, report.dimensions));
  });
  return report;
}

}  // namespace kvcal::report
