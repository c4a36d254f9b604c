#include "sweep/sweep_run.h"

#include <algorithm>
#include <cmath>

#include "core/folder.h"
#include "core/registry.h"
#include "export/writer.h"
#include "sweep/sweep_inputs.h"
#include "sweep/task_context.h"
#include "sweep/task_slots.h"

namespace kvcal {
namespace {

/// Whether each cell was requested.
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

SweepOutlook outlook_of(const std::vector<SweepTask>& open, const SweepEstimate& estimate,
                        size_t jobs) {
  SweepOutlook outlook;
  outlook.num_tasks = open.size();
  outlook.jobs = jobs;
  for (const SweepTask& task : open) {
    SweepOutlook::Share& share = outlook.shares[static_cast<size_t>(task.kind)];
    ++share.num_tasks;
    share.tokens += estimate.tokens(task);
    share.seconds += estimate.seconds(task);
    outlook.memory_bytes = std::max(outlook.memory_bytes, estimate.memory(task));
  }
  outlook.memory_bytes *= static_cast<double>(jobs);
  for (const auto& share : outlook.shares)
    outlook.seconds += share.seconds / static_cast<double>(jobs);
  outlook.busy_seconds = outlook.seconds / estimate.share();
  return outlook;
}

/// The inputs of a run are read, and the work that is left is known.
struct Prepared {
  std::vector<bool> wanted;
  SweepEstimate estimate;
  SweepOutlook outlook;
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
  SweepOutlook outlook = outlook_of(open_tasks(sweep.plan, wanted, done, jobs), estimate, jobs);
  for (size_t i = 0; i < wanted.size(); ++i) {
    outlook.num_wanted += wanted[i] ? 1 : 0;
    outlook.num_there += wanted[i] && done.cells[i] && done.answers[i] ? 1 : 0;
  }
  return {wanted, std::move(estimate), outlook};
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

}  // namespace

std::string_view share_name(size_t share) {
  constexpr std::string_view kNames[] = {"statistics", "scales", "evaluations", "questions"};
  return kNames[share];
}

Json to_json(const Sweep& sweep, const SweepOutlook& outlook) {
  Json cells = Json::array(), tasks = Json::array();
  for (const Cell& cell : sweep.plan.cells) {
    cells.push_back({{"id", cell.id}});
    cells.back().update(coordinates_json(cell, sweep.file));
  }
  for (size_t i = 0; i < outlook.shares.size(); ++i)
    tasks.push_back({{"task", share_name(i)},
                     {"number", outlook.shares[i].num_tasks},
                     {"tokens", outlook.shares[i].tokens},
                     {"seconds", std::round(outlook.shares[i].seconds)}});
  return {{"name", sweep.file.name},
          {"num_combinations", sweep.plan.num_combinations},
          {"num_merged", sweep.plan.num_merged()},
          {"left_out", sweep.plan.meaningless},
          {"tasks", std::move(tasks)},
          {"seconds", std::round(outlook.seconds)},
          {"busy_seconds", std::round(outlook.busy_seconds)},
          {"memory_bytes", std::round(outlook.memory_bytes)},
          {"cells", std::move(cells)}};
}

SweepPreview preview_sweep(const SweepSettings& settings, Diagnostics& diagnostics) {
  SweepPreview preview{
      .sweep = read_planned_sweep(settings.file, settings.version, settings.family), .outlook = {}};
  std::optional<SweepFolder> folder;
  if (!settings.output.empty() && is_there(settings.output))
    folder.emplace(settings.output, SweepFolder::Use::kLook, diagnostics);
  preview.outlook = prepare(settings, folder ? &*folder : nullptr, preview.sweep).outlook;
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
  events.planned(sweep, prepared.outlook);
  run_tasks(settings, sweep, prepared.wanted, folder, prepared.estimate, events);
  SweepResult result = result_of(sweep, folder, prepared.wanted);
  if (folder.is_whole()) result.results = write_results(sweep, folder);
  return result;
}

SweepResult collect_sweep(const SweepSettings& settings, Diagnostics& diagnostics) {
  Sweep sweep = read_planned_sweep(settings.file, settings.version, settings.family);
  if (!is_there(settings.output))
    fail(settings.output.string(),
         ": no such folder; --collect makes tables of what runs have left");
  const SweepFolder folder(settings.output, SweepFolder::Use::kPart, diagnostics);
  // The machine that collects may have none of the devices that did the work.
  auto kept = read_machine(sweep, folder);
  if (!kept) fail(settings.output.string(), ": holds no results of the sweep's models");
  // The compute dtype that is asked for goes before that of the last run, as in a run.
  if (const std::string asked = asked_compute_dtype(settings.device, sweep); asked != "auto")
    std::ranges::fill(kept->compute_dtype, asked);
  add_inputs(*kept, folder, sweep);
  SweepResult result = result_of(sweep, folder, std::vector<bool>(sweep.plan.cells.size(), true));
  result.results = write_results(sweep, folder);
  return result;
}

namespace {

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

}  // namespace

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

}  // namespace kvcal
