#include "sweep_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <set>

#include "sweep/metrics.h"
#include "table.h"

namespace kvcal {
namespace {

/// Tasks of one kind.
struct Share {
  std::string_view name;
  size_t count = 0;
  int64_t tokens = 0;
  double seconds = 0.0;
};

std::array<Share, 4> shares_of(const std::vector<SweepTask>& tasks, const SweepEstimate& estimate) {
  std::array<Share, 4> shares{{{"statistics"}, {"scales"}, {"evaluations"}, {"questions"}}};
  for (const SweepTask& task : tasks) {
    Share& share = shares[static_cast<size_t>(task.kind)];
    ++share.count;
    share.tokens += estimate.tokens(task);
    share.seconds += estimate.seconds(task);
  }
  return shares;
}

Json plan_json(const Sweep& sweep, const std::array<Share, 4>& shares, double seconds,
               double memory) {
  Json cells = Json::array(), tasks = Json::array();
  for (const Cell& cell : sweep.plan.cells) {
    cells.push_back({{"id", cell.id}});
    cells.back().update(coordinates_json(cell, sweep.file));
  }
  for (const Share& share : shares)
    tasks.push_back({{"task", share.name},
                     {"number", share.count},
                     {"tokens", share.tokens},
                     {"seconds", std::round(share.seconds)}});
  return {{"name", sweep.file.name},
          {"num_combinations", sweep.plan.num_combinations},
          {"num_merged", sweep.plan.num_merged()},
          {"left_out", sweep.plan.meaningless},
          {"tasks", std::move(tasks)},
          {"seconds", std::round(seconds)},
          {"memory_bytes", std::round(memory)},
          {"cells", std::move(cells)}};
}

void print_counts(const SweepPlan& plan, const std::string& name, std::ostream& out) {
  out << name << ": " << plan.cells.size() << " cells";
  if (const int64_t merged = plan.num_merged())
    out << " of " << plan.num_combinations << " combinations; " << merged
        << (merged == 1 ? " means" : " mean") << " the same as others";
  out << '\n';
  for (const auto& [why, count] : plan.meaningless)
    out << "left out: " << count << (count == 1 ? " combination, " : " combinations, ") << why
        << '\n';
}

std::string metric_text(const Json& cell, const std::string& name) {
  const Json& value = cell[name];
  if (!value.is_number()) return "";
  const double number = value.get<double>();
  const bool is_part =
      name == "top1_agreement" || name == "perplexity_increase" || name.starts_with("exact_match");
  if (is_part) return percent(number);
  if (name == "weight_bytes") return byte_text(number);
  return short_float(number);
}

}  // namespace

std::string time_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  char text[48];
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  }
  return text;
}

void print_ids(const SweepOptions& options, const Sweep& sweep) {
  Json ids = Json::array();
  for (const Cell& cell : sweep.plan.cells) ids.push_back(cell.id);
  if (options.json) {
    std::cout << dump_json(ids);
    return;
  }
  for (const Cell& cell : sweep.plan.cells) std::cout << cell.id << '\n';
}

void print_plan(const SweepOptions& options, const Sweep& sweep, const std::vector<SweepTask>& open,
                const SweepEstimate& estimate, size_t jobs, std::ostream& out) {
  const std::array<Share, 4> shares = shares_of(open, estimate);
  double seconds = 0.0, memory = 0.0;
  for (const Share& share : shares) seconds += share.seconds / static_cast<double>(jobs);
  for (const SweepTask& task : open) memory = std::max(memory, estimate.memory(task));
  memory *= static_cast<double>(jobs);
  if (options.json && options.is_dry_run) {
    out << dump_json(plan_json(sweep, shares, seconds, memory));
    return;
  }
  print_counts(sweep.plan, sweep.file.name, out);
  Table table({"to do", "tasks", "tokens", "time"});
  for (const Share& share : shares)
    if (share.count > 0)
      table.add({std::string(share.name), std::to_string(share.count), std::to_string(share.tokens),
                 time_text(share.seconds)});
  if (open.empty()) {
    out << "nothing is left to do\n";
    return;
  }
  table.print(out);
  out << "about " << time_text(seconds)
      << (jobs > 1 ? ", " + std::to_string(jobs) + " at a time" : "") << ", and "
      << byte_text(memory) << " of memory\n";
}

void print_cells(const Json& results) {
  std::vector<std::string> shown, heading{"cell"};
  for (const Metric& metric : all_metrics()) {
    std::set<Json> values;
    for (const Json& cell : results["cells"])
      if (cell[metric.name].is_number()) values.insert(cell[metric.name]);
    // A number that all have tells nothing apart.
    if (values.size() > 1 || (values.size() == 1 && results["cells"].size() == 1))
      shown.push_back(metric.name);
  }
  heading.insert(heading.end(), shown.begin(), shown.end());
  heading.insert(heading.end(), {"front", "status"});
  Table table(heading);
  for (const Json& cell : results["cells"]) {
    std::vector<std::string> row{cell["id"].get<std::string>()};
    for (const std::string& name : shown) row.push_back(metric_text(cell, name));
    row.push_back(cell["is_pareto"] == true ? "*" : "");
    row.push_back(cell["status"].get<std::string>());
    table.add(std::move(row));
  }
  table.print(std::cout);
}

}  // namespace kvcal
