#include "sweep/sweep_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "core/folder.h"
#include "core/registry.h"
#include "core/text.h"
#include "export/writer.h"
#include "run/calibration_preview.h"
#include "sweep/sweep_inputs.h"
#include "sweep/sweep_tasks.h"

namespace kvcal {
namespace {

/// Names of RemainingWork::shares, by the kind of their tasks.
constexpr std::string_view kShareNames[] = {"statistics", "scales", "evaluations", "questions"};

std::vector<bool> wanted_cells(const SweepSettings& settings, const SweepPlan& plan) {
  std::vector<bool> wanted(plan.cells.size(), settings.cells.empty());
  for (const std::string& id : settings.cells) {
    const auto found = std::ranges::find(plan.cells, id, &Cell::id);
    if (found == plan.cells.end()) {
      std::vector<std::string> ids;
      for (const Cell& cell : plan.cells) ids.push_back(cell.id);
      fail("--cell: the sweep has no cell '", id, "'", did_you_mean(id, ids), "; --list names all");
    }
    wanted[static_cast<size_t>(found - plan.cells.begin())] = true;
  }
  return wanted;
}

RemainingWork remaining_of(const std::vector<SweepTask>& open, const SweepEstimate& estimate,
                           size_t jobs) {
  RemainingWork remaining;
  remaining.num_tasks = open.size();
  remaining.jobs = jobs;
  for (const SweepTask& task : open) {
    RemainingWork::Share& share = remaining.shares[static_cast<size_t>(task.kind)];
    ++share.num_tasks;
    share.tokens += estimate.tokens(task);
    share.seconds += estimate.seconds(task);
    remaining.memory_bytes = std::max(remaining.memory_bytes, estimate.memory(task));
  }
  remaining.memory_bytes *= static_cast<double>(jobs);
  for (const auto& share : remaining.shares)
    remaining.seconds += share.seconds / static_cast<double>(jobs);
  remaining.busy_seconds = remaining.seconds / estimate.share();
  return remaining;
}

/// The inputs of a run are read, and the work that is left is known.
struct Prepared {
  std::vector<bool> wanted;
  SweepEstimate estimate;
  RemainingWork remaining;
};

/// folder: null where there is none yet. Adds the inputs to the sweep, which the estimate borrows.
Prepared prepare(const SweepSettings& settings, const SweepFolder* folder, Sweep& sweep) {
  SilentDiagnostics silent;  // the tasks read it all again, and warn
  // The memory and threads of these backends are the children's when they run.
  const auto backends = open_backends(settings.device, silent);
  const SweepMachine machine = machine_of(settings.device, *backends[0], sweep);
  if (folder && folder->may_write()) write_machine(machine, sweep, *folder);
  if (folder) {
    add_inputs(machine, *folder, sweep);
  } else {
    sweep.inputs.compute_dtype = machine.compute_dtype;  // there are no results to compare with
  }
  const std::vector<bool> wanted = wanted_cells(settings, sweep.plan);
  const size_t jobs = num_jobs(settings.device, settings.jobs);
  SweepEstimate estimate(settings.device, jobs, sweep, *backends[0], silent);
  if (folder) learn_timings(*folder, estimate);
  const SweepProgress done =
      folder ? progress_of(sweep, *folder) : nothing_done(sweep.file, sweep.plan);
  RemainingWork remaining =
      remaining_of(open_tasks(sweep.plan, wanted, done, jobs), estimate, jobs);
  for (size_t i = 0; i < wanted.size(); ++i) {
    remaining.num_wanted += wanted[i] ? 1 : 0;
    remaining.num_there += wanted[i] && done.cells[i] && done.answers[i] ? 1 : 0;
  }
  return {wanted, std::move(estimate), remaining};
}

SweepResult result_of(const Sweep& sweep, const SweepFolder& folder,
                      const std::vector<bool>& wanted) {
  SweepResult result;
  const std::vector<CellOutcome> outcomes = outcomes_of(sweep, folder);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (!wanted[i]) continue;
    ++result.num_wanted;
    if (outcomes[i].status == CellOutcome::Status::kFailed)
      result.failed.push_back(sweep.plan.cells[i].id);
  }
  return result;
}

void run_work(const SweepTask& work, const TaskContext& context) {
  const SweepPlan& plan = context.sweep.plan;
  const size_t part = work.parts.at(0);
  switch (work.kind) {
    case SweepTask::Kind::kObserve:
      return collect_statistics(context, plan.observations[part]);
    case SweepTask::Kind::kCalibrate:
      return make_scales(context, plan.calibrations[part]);
    case SweepTask::Kind::kEvaluate:
      return evaluate_cells(context, work.parts);
    case SweepTask::Kind::kAnswer:
      return answer_questions(context, plan.cells[part]);
  }
}

void put_counts(const SweepPlan& plan, const std::string& name, std::ostream& out) {
  out << name << ": " << counted(plan.cells.size(), "cell");
  if (const int64_t merged = plan.num_merged())
    out << " of " << counted(plan.num_combinations, "combination") << "; " << merged
        << (merged == 1 ? " means" : " mean") << " the same as others";
  out << '\n';
  for (const auto& [why, count] : plan.meaningless)
    out << "left out: " << counted(count, "combination") << ", " << why << '\n';
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
  return counted(cells.size(), "cell") + ": " + join(counts, ", ", text) +
         (has_front ? "; those of the front (--verbose lists all):\n"
                    : " (--verbose lists them)\n");
}

/// Names of those measures that distinguish cells: a number that all share distinguishes none.
std::vector<std::string> telling_metrics(const std::vector<report::SweepCell>& cells) {
  std::vector<std::string> names;
  for (const std::string& name : kCellMetrics.names()) {
    std::set<double> values;
    for (const report::SweepCell& cell : cells)
      if (const double value = cell.metrics.at(name); !std::isnan(value)) values.insert(value);
    if (values.size() > 1 || (values.size() == 1 && cells.size() == 1)) names.push_back(name);
  }
  return names;
}

}  // namespace

Json to_json(const Sweep& sweep, const RemainingWork& remaining) {
  Json cells = Json::array(), tasks = Json::array();
  for (const Cell& cell : sweep.plan.cells) {
    cells.push_back({{"id", cell.id}});
    cells.back().update(coordinates_json(cell, sweep.file));
  }
  for (size_t i = 0; i < remaining.shares.size(); ++i)
    tasks.push_back({{"task", kShareNames[i]},
                     {"number", remaining.shares[i].num_tasks},
                     {"tokens", remaining.shares[i].tokens},
                     {"seconds", std::round(remaining.shares[i].seconds)}});
  return {{"name", sweep.file.name},
          {"num_combinations", sweep.plan.num_combinations},
          {"num_merged", sweep.plan.num_merged()},
          {"left_out", sweep.plan.meaningless},
          {"tasks", std::move(tasks)},
          {"seconds", std::round(remaining.seconds)},
          {"busy_seconds", std::round(remaining.busy_seconds)},
          {"memory_bytes", std::round(remaining.memory_bytes)},
          {"cells", std::move(cells)}};
}

SweepPreview preview_sweep(const SweepSettings& settings, Diagnostics& diagnostics) {
  SweepPreview preview{.sweep =
                           read_planned_sweep(settings.file, settings.version, settings.family)};
  std::optional<SweepFolder> folder;
  if (!settings.output.empty() && is_there(settings.output))
    folder.emplace(settings.output, SweepFolder::Use::kLook, diagnostics);
  preview.remaining = prepare(settings, folder ? &*folder : nullptr, preview.sweep).remaining;
  return preview;
}

SweepResult run_sweep(const SweepSettings& settings, SweepEvents& events,
                      Diagnostics& diagnostics) {
  Sweep sweep = read_planned_sweep(settings.file, settings.version, settings.family);
  for (const SweepModel& model : sweep.file.models)
    check_target(ModelDir(model.path), settings.output);
  const auto use = settings.cells.empty() ? SweepFolder::Use::kWhole : SweepFolder::Use::kPart;
  const SweepFolder folder(settings.output, use, diagnostics);
  Prepared prepared = prepare(settings, &folder, sweep);
  events.planned(sweep, prepared.remaining);
  run_tasks(settings, sweep, prepared.wanted, folder, prepared.estimate, events);
  SweepResult result = result_of(sweep, folder, prepared.wanted);
  if (folder.is_whole()) result.results = write_results(sweep, folder);
  return result;
}

SweepResult collect_sweep(const SweepSettings& settings, Diagnostics& diagnostics) {
  Sweep sweep = read_planned_sweep(settings.file, settings.version, settings.family);
  if (!is_there(settings.output))
    fail(settings.output, ": no such folder; --collect makes tables of what runs have left");
  const SweepFolder folder(settings.output, SweepFolder::Use::kPart, diagnostics);
  // The machine that collects may have none of the devices that did the work.
  auto kept = read_machine(sweep, folder);
  if (!kept) fail(settings.output, ": holds no results of the sweep's models");
  // The compute dtype that is asked for goes before that of the last run, as in a run.
  if (const std::string asked = asked_compute_dtype(settings.device, sweep); asked != "auto")
    std::ranges::fill(kept->compute_dtype, asked);
  add_inputs(*kept, folder, sweep);
  SweepResult result = result_of(sweep, folder, std::vector<bool>(sweep.plan.cells.size(), true));
  result.results = write_results(sweep, folder);
  return result;
}

void run_task(const SweepSettings& settings, const std::string& task, Diagnostics& diagnostics) {
  Sweep sweep = read_planned_sweep(settings.file, settings.version, settings.family);
  const auto backend = open_backend(settings.device, diagnostics);
  const SweepFolder folder(settings.output, SweepFolder::Use::kTask, diagnostics);
  add_inputs(machine_of(settings.device, *backend, sweep), folder, sweep);
  const SweepTask work = parse_task(task, sweep.plan);
  const size_t part = work.parts.at(0);
  const SweepFolder::PieceLock lock(folder, fingerprint_of(work.kind, part, sweep.plan));
  if (is_done(work, sweep, folder)) return;
  const TaskContext context{.sweep = sweep,
                            .folder = folder,
                            .device = settings.device,
                            .backend = *backend,
                            .diagnostics = diagnostics};
  run_work(work, context);
  tell_warnings(*backend, diagnostics);
}

std::string reuse_text(const RemainingWork& remaining) {
  if (remaining.num_there == 0) return "";
  return "already there: " + std::to_string(remaining.num_there) + " of " +
         counted(remaining.num_wanted, "cell") + ", of the same models, texts and settings\n";
}

std::string remaining_text(const Sweep& sweep, const RemainingWork& remaining) {
  std::ostringstream out;
  put_counts(sweep.plan, sweep.file.name, out);
  if (remaining.num_tasks == 0) {
    out << "nothing is left to do\n";
    return out.str();
  }
  TextTable table({"to do", "tasks", "tokens", "time"});
  for (size_t i = 0; i < remaining.shares.size(); ++i)
    if (const RemainingWork::Share& share = remaining.shares[i]; share.num_tasks > 0)
      table.add({std::string(kShareNames[i]), std::to_string(share.num_tasks),
                 std::to_string(share.tokens), time_text(share.seconds)});
  out << table.text();
  out << estimate_text(remaining.seconds, remaining.busy_seconds)
      << (remaining.jobs > 1 ? ", " + std::to_string(remaining.jobs) + " at a time" : "")
      << ", and " << byte_text(remaining.memory_bytes) << " of memory\n";
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
    for (const std::string& name : metrics) row.push_back(metric_cell(name, cell.metrics.at(name)));
    if (has_verdict) row.push_back(cell.verdict);
    row.push_back(cell.is_pareto ? "*" : "");
    row.push_back(cell.status);
    table.add(std::move(row));
  }
  return (has_all ? "" : cell_counts(cells)) + (is_empty ? "" : table.text());
}

}  // namespace kvcal
