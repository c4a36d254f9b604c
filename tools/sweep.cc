#include <algorithm>
#include <iostream>
#include <optional>

#include "commands.h"
#include "core/folder.h"
#include "export/writer.h"
#include "progress.h"
#include "sweep/child_process.h"
#include "sweep/kept_results.h"
#include "sweep_report.h"
#include "sweep_run.h"
#include "sweep_tables.h"
#include "sweep_tasks.h"

namespace kvcal {
namespace {

void check(const SweepOptions& options) {
  const int modes = options.is_dry_run + options.is_list + options.is_collect;
  if (modes > 1) fail("--dry-run, --list and --collect exclude each other");
  if (!options.cells.empty() && (options.is_collect || options.is_list))
    fail("--cell and ", options.is_collect ? "--collect" : "--list", " exclude each other");
  if (options.output.empty() && !options.is_dry_run && !options.is_list)
    fail("needs --output, the folder of the results");
}

/// Whether each cell was asked for.
std::vector<bool> wanted_cells(const SweepOptions& options, const SweepPlan& plan) {
  std::vector<bool> wanted(plan.cells.size(), options.cells.empty());
  for (const std::string& id : options.cells) {
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

/// A child: one task, whose result is a file.
void run_child(const SweepOptions& options, Sweep sweep) {
  TerminalDiagnostics diagnostics;
  const auto backend = open_backend(options.device);
  const SweepFolder folder(options.output, SweepFolder::Use::kTask, diagnostics);
  add_inputs(machine_of(options, *backend, sweep), folder, sweep);
  run_task(options, sweep, parse_task(options.task, sweep.plan), folder, *backend, diagnostics);
}

/// Says which of the wanted cells failed, and ends with exit code 1 where there are some.
void fail_of_cells(const std::vector<CellOutcome>& outcomes, const std::vector<bool>& wanted,
                   const SweepPlan& plan, const fs::path& results) {
  std::string ids;
  size_t failed = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (!wanted[i] || outcomes[i].status != CellOutcome::Status::kFailed) continue;
    ids += (ids.empty() ? "" : ", ") + plan.cells[i].id;
    ++failed;
  }
  if (failed > 0)
    fail(failed, " of ", std::ranges::count(wanted, true), " cells failed: ", ids, "; ",
         results.string(), " says why");
}

void print_results(const SweepOptions& options, const Json& results) {
  if (options.json) {
    std::cout << dump_json(results);
  } else {
    print_cells(results);
  }
  std::cout.flush();
}

/// Tables of what is there, of cells that ran on their own.
void collect(const SweepOptions& options, const Sweep& sweep, const SweepFolder& folder) {
  const Json results = write_results(sweep, folder);
  write_sweep_report(results, {.page = (folder.path() / "report.html").string(),
                               .plots = (folder.path() / "plots").string(),
                               .overwrite = true});
  print_results(options, results);
  fail_of_cells(outcomes_of(sweep, folder), wanted_cells(options, sweep.plan), sweep.plan,
                folder.results());
}

void print_reuse(const SweepProgress& done, const std::vector<bool>& wanted) {
  size_t there = 0, all = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    all += wanted[i] ? 1 : 0;
    there += wanted[i] && done.cells[i] && done.answers[i] ? 1 : 0;
  }
  if (there > 0)
    std::cerr << there << " of " << all
              << " cells are there already: their model, texts and settings are the same\n";
}

/// What a run begins with: everything read, and what is left to do.
struct Prepared {
  std::vector<bool> wanted;
  SweepEstimate estimate;
  std::vector<SweepTask> open;
};

/// folder: null where there is none yet.
Prepared prepare(const SweepOptions& options, const SweepFolder* folder, Sweep& sweep) {
  SilentDiagnostics diagnostics;  // the tasks read it all again, and warn
  // Its memory and threads are the children's when they run.
  const auto backends = open_backends(options.device);
  const SweepMachine machine = machine_of(options, *backends[0], sweep);
  if (folder && folder->may_write()) write_machine(machine, sweep, *folder);
  if (folder) {
    add_inputs(machine, *folder, sweep);
  } else {
    sweep.inputs.compute_dtype = machine.compute_dtype;  // nothing is there to be compared with
  }
  std::vector<bool> wanted = wanted_cells(options, sweep.plan);
  SweepEstimate estimate(options, sweep, *backends[0], diagnostics);
  if (folder) learn_timings(*folder, estimate);
  const SweepProgress done =
      folder ? progress_of(sweep, *folder) : nothing_done(sweep.file, sweep.plan);
  print_reuse(done, wanted);
  auto open = open_tasks(options, sweep, wanted, done);
  return {std::move(wanted), std::move(estimate), std::move(open)};
}

void run_dry(const SweepOptions& options, Sweep sweep) {
  std::optional<SweepFolder> folder;
  SilentDiagnostics diagnostics;
  if (!options.output.empty() && is_there(options.output))
    folder.emplace(options.output, SweepFolder::Use::kLook, diagnostics);
  const Prepared prepared = prepare(options, folder ? &*folder : nullptr, sweep);
  print_plan(options, sweep, prepared.open, prepared.estimate, num_jobs(options), std::cout);
}

void run_collect(const SweepOptions& options, Sweep sweep) {
  if (!is_there(options.output))
    fail(options.output, ": no such folder; --collect makes tables of what runs have left");
  TerminalDiagnostics diagnostics;
  const SweepFolder folder(options.output, SweepFolder::Use::kPart, diagnostics);
  // The machine that collects may have none of the devices that did the work.
  auto kept = read_machine(sweep, folder);
  if (!kept) fail(options.output, ": holds no results of the sweep's models");
  // What is asked for goes before what the last run had, as in a run.
  if (const std::string asked = asked_compute_dtype(options, sweep); asked != "auto")
    std::ranges::fill(kept->compute_dtype, asked);
  add_inputs(*kept, folder, sweep);
  collect(options, sweep, folder);
}

void run_cells(const SweepOptions& options, Sweep sweep) {
  for (const SweepModel& model : sweep.file.models)
    check_target(ModelDir(model.path), options.output);
  const auto use = options.cells.empty() ? SweepFolder::Use::kWhole : SweepFolder::Use::kPart;
  TerminalDiagnostics diagnostics;
  const SweepFolder folder(options.output, use, diagnostics);
  Prepared prepared = prepare(options, &folder, sweep);
  print_plan(options, sweep, prepared.open, prepared.estimate, num_jobs(options), std::cerr);
  run_sweep(options, sweep, prepared.wanted, folder, use, prepared.estimate);
  if (use == SweepFolder::Use::kWhole) return collect(options, sweep, folder);
  fail_of_cells(outcomes_of(sweep, folder), prepared.wanted, sweep.plan, folder.path());
}

void run_sweep_command(const SweepOptions& options) {
  if (!options.task.empty()) end_with_parent(options.parent);
  check(options);
  Sweep sweep = read_planned_sweep(options);
  if (!options.task.empty()) return run_child(options, std::move(sweep));
  if (options.is_list) return print_ids(options, sweep);
  if (options.is_dry_run) return run_dry(options, std::move(sweep));
  if (options.is_collect) return run_collect(options, std::move(sweep));
  run_cells(options, std::move(sweep));
}

}  // namespace

void add_sweep(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* command = app.add_subcommand(
      "sweep", "Measure a grid of recipes, cache dtypes and scales; goes on where it was stopped");
  command->add_option("file", options->file, "YAML file of the grid (docs/sweep.md)")
      ->required()
      ->check(is_not_empty());
  command
      ->add_option("--output", options->output,
                   "Folder of the results; with the same one a run goes on where it stopped")
      ->check(is_not_empty());
  command->add_flag("--dry-run", options->is_dry_run,
                    "Print what would be done, how long it takes and in what memory");
  command->add_flag("--list", options->is_list, "Print the ids of all cells");
  command
      ->add_option("--cell", options->cells,
                   "Id of a cell to do, and no tables; may be repeated. Several such runs may use "
                   "one output at a time")
      ->check(is_not_empty());
  CLI::Option* collect =
      command->add_flag("--collect", options->is_collect,
                        "Make the tables of what is in the output, and run nothing");
  command
      ->add_option("--jobs", options->jobs, "Tasks at a time; 0: one for each device of --device")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  add_device_options(*command, options->device);
  for (const char* of_runs : {"--device", "--threads", "--jobs"})
    collect->excludes(command->get_option(of_runs));
  CLI::Option* parent =
      command->add_option("--parent", options->parent, "Process that started a child")->group("");
  command->add_option("--task", options->task, "Of a child of this command")
      ->group("")
      ->needs(parent);
  command->callback([options, &run] { run = [options] { run_sweep_command(*options); }; });
}

}  // namespace kvcal
