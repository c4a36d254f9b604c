#include "sweep/sweep_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "core/join.h"
#include "core/number_text.h"
#include "core/text_table.h"
#include "core/time_text.h"
#include "run/calibration_preview.h"

namespace kvcal {
namespace {

void put_counts(const SweepPlan& plan, const std::string& name, std::ostream& out) {
  out << name << ": " << plan.cells.size() << " cells";
  if (const int64_t merged = plan.num_merged())
    out << " of " << plan.num_combinations << " combinations; " << merged
        << (merged == 1 ? " means" : " mean") << " the same as others";
  out << '\n';
  for (const auto& [why, count] : plan.meaningless)
    out << "left out: " << count << (count == 1 ? " combination, " : " combinations, ") << why
        << '\n';
}

std::string metric_cell(const std::string& name, double number) {
  if (std::isnan(number)) return "";
  const bool is_part =
      name == "top1_agreement" || name == "perplexity_increase" || name.starts_with("exact_match");
  if (is_part) return percent(number);
  if (name == "weight_bytes") return byte_text(number);
  return short_float(number);
}

/// "120 cells: 118 done, 2 failed; those of the front (--verbose lists all):"
std::string cell_counts(const std::vector<report::SweepCell>& cells) {
  std::map<std::string, size_t> counts;
  for (const report::SweepCell& cell : cells) ++counts[cell.status];
  const auto text = [](const auto& count) {
    return std::to_string(count.second) + " " + count.first;
  };
  const bool has_front = std::ranges::any_of(cells, &report::SweepCell::is_pareto);
  return std::to_string(cells.size()) + " cells: " + join(counts, ", ", text) +
         (has_front ? "; those of the front (--verbose lists all):\n"
                    : " (--verbose lists them)\n");
}

/// Names of those measures that distinguish cells: a number that all share distinguishes none.
std::vector<std::string> telling_metrics(const std::vector<report::SweepCell>& cells) {
  std::vector<std::string> names;
  for (const Metric& metric : all_metrics()) {
    std::set<double> values;
    for (const report::SweepCell& cell : cells)
      if (const double value = cell.measures.at(metric.name); !std::isnan(value))
        values.insert(value);
    if (values.size() > 1 || (values.size() == 1 && cells.size() == 1))
      names.push_back(metric.name);
  }
  return names;
}

}  // namespace

std::string reuse_text(const SweepOutlook& outlook) {
  if (outlook.num_there == 0) return "";
  return std::to_string(outlook.num_there) + " of " + std::to_string(outlook.num_wanted) +
         " cells are there already: their model, texts and settings are the same\n";
}

std::string outlook_text(const Sweep& sweep, const SweepOutlook& outlook) {
  std::ostringstream out;
  put_counts(sweep.plan, sweep.file.name, out);
  if (outlook.num_tasks == 0) {
    out << "nothing is left to do\n";
    return out.str();
  }
  TextTable table({"to do", "tasks", "tokens", "time"});
  for (size_t i = 0; i < outlook.shares.size(); ++i)
    if (const SweepOutlook::Share& share = outlook.shares[i]; share.num_tasks > 0)
      table.add({std::string(share_name(i)), std::to_string(share.num_tasks),
                 std::to_string(share.tokens), time_text(share.seconds)});
  out << table.text();
  out << estimate_text(outlook.seconds, outlook.busy_seconds)
      << (outlook.jobs > 1 ? ", " + std::to_string(outlook.jobs) + " at a time" : "") << ", and "
      << byte_text(outlook.memory_bytes) << " of memory\n";
  return out.str();
}

std::string cells_text(const std::vector<report::SweepCell>& cells, size_t most_rows) {
  const std::vector<std::string> metrics = telling_metrics(cells);
  std::vector<std::string> heading{"cell"};
  heading.insert(heading.end(), metrics.begin(), metrics.end());
  const bool has_verdict = std::ranges::any_of(
      cells, [](const report::SweepCell& cell) { return !cell.verdict.empty(); });
  if (has_verdict) heading.push_back("verdict");
  heading.insert(heading.end(), {"front", "status"});
  TextTable table(heading);
  const bool has_all = cells.size() <= most_rows;
  bool is_empty = true;
  for (const report::SweepCell& cell : cells) {
    if (!has_all && !cell.is_pareto) continue;
    is_empty = false;
    std::vector<std::string> row{cell.id};
    for (const std::string& name : metrics)
      row.push_back(metric_cell(name, cell.measures.at(name)));
    if (has_verdict) row.push_back(cell.verdict);
    row.push_back(cell.is_pareto ? "*" : "");
    row.push_back(cell.status);
    table.add(std::move(row));
  }
  return (has_all ? "" : cell_counts(cells)) + (is_empty ? "" : table.text());
}

}  // namespace kvcal
