#include "sweep/sweep_run.h"

#include <unistd.h>

#include <iostream>

#include "commands.h"
#include "core/join.h"
#include "core/time_text.h"
#include "kvcal_version.h"
#include "run/report_files.h"
#include "sweep/sweep_inputs.h"
#include "sweep/sweep_text.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

/// What --template prints: a grid that runs once its model is named.
constexpr std::string_view kTemplate =
    R"(# kvcal sweep THIS-FILE --dry-run says how long it takes; all keys: docs/sweep.md
name: kv-scales
models: [MODEL]  # folders, seen from here, or ids of the hub
recipes: [fp8_kv_tensor, fp8_kv_head, fp8_kv_mse]  # files, or names: kvcal calibrate --help lists them
calibration: {dataset: calibration, max_seq_length: 512}  # the program's own, or CSV, JSON lines, text, an id
evaluation: {dataset: evaluation, max_seq_length: 512, num_samples: 32}
grid:  # every combination of the values in one entry is a cell
  - {kv_cache_dtypes: [auto, fp8_e4m3], scales: unit, recipes: []}  # 16 bits, and FP8 with scale 1.0
  - {num_samples: 64}  # each recipe, with an FP8 cache
)";

struct SweepOptions {
  std::string file, output;
  FamilyChoice family;
  DeviceOptions device;
  int jobs = 0;
  std::vector<std::string> cells;
  std::string task;  ///< of a child: the one task that it does
  pid_t parent = 0;  ///< of a child: the process that started it
  bool is_dry_run = false, is_list = false, is_collect = false, is_template = false;
  bool json = false;
};

void check(const SweepOptions& options) {
  const int modes = options.is_dry_run + options.is_list + options.is_collect;
  if (modes > 1) fail("--dry-run, --list and --collect exclude each other");
  if (!options.cells.empty() && (options.is_collect || options.is_list))
    fail("--cell and ", options.is_collect ? "--collect" : "--list", " exclude each other");
  if (options.output.empty() && !options.is_dry_run && !options.is_list)
    fail("needs --output, the folder of the results");
}

/// A child is this program again, with --task.
Command child_command(const SweepOptions& options, const std::string& task,
                      const DeviceOptions& device) {
  Command command{"/proc/self/exe",
                  {fs::read_symlink("/proc/self/exe").string(), "sweep", options.file, "--output",
                   options.output, "--task", task, "--parent", std::to_string(::getpid()),
                   "--device", device.device, "--threads", std::to_string(device.threads),
                   "--compute-dtype", device.compute_dtype}};
  if (options.family)
    command.words.insert(command.words.end(), {options.family.option, options.family.value});
  return command;
}

SweepSettings settings_of(const SweepOptions& options) {
  return {.file = options.file,
          .output = options.output,
          .version = KVCAL_VERSION,
          .family = options.family,
          .device = options.device,
          .jobs = options.jobs,
          .cells = options.cells,
          .command = [&options](const std::string& task, const DeviceOptions& device) {
            return child_command(options, task, device);
          }};
}

void print_list(const SweepOptions& options, const SweepPlan& plan) {
  Json ids = Json::array();
  for (const Cell& cell : plan.cells) ids.push_back(cell.id);
  if (options.json) {
    std::cout << dump_json(ids);
    return;
  }
  for (const Cell& cell : plan.cells) std::cout << cell.id << '\n';
}

/// The course of a sweep on stderr; how far a task is only on a terminal, in one line. With --quiet
/// failures alone.
class TerminalEvents : public SweepEvents {
 public:
  void planned(const Sweep& sweep, const SweepOutlook& outlook) override {
    if (is_quiet()) return;
    std::cerr << reuse_text(outlook) << outlook_text(sweep, outlook);
  }
  void started(size_t number, size_t num_tasks, const std::string& description) override {
    said("[" + std::to_string(number) + "/" + std::to_string(num_tasks) + "] " + description);
  }
  void said(const std::string& line) override {
    if (!is_quiet()) std::cerr << line + "\n";
  }
  void progressed(const std::string& line) override {
    if (!is_quiet()) status_line().show("        " + line);
  }
  void failed(const std::string& why) override { std::cerr << "failed: " + why + "\n"; }
  void ended(double seconds, double seconds_left) override {
    said("        " + time_text(seconds) + ", about " + time_text(seconds_left) + " left");
  }
};

/// Prints the tables and writes the page of a whole sweep; a run of some cells has neither. Throws
/// Error where cells failed.
void finish(const SweepOptions& options, const SweepResult& result, Diagnostics& diagnostics) {
  const fs::path folder = options.output;
  if (result.results) {
    const report::SweepReport& report = result.results->report;
    write_report_files({.page = (folder / "report.html").string(),
                        .plots = (folder / "plots").string(),
                        .overwrite = true},
                       sweep_page(report), sweep_plots(report), diagnostics);
    if (options.json) {
      std::cout << dump_json(result.results->json);
    } else {
      std::cout << cells_text(report.cells, most_rows());
    }
    std::cout.flush();
  }
  if (!result.failed.empty())
    fail(result.failed.size(), " of ", result.num_wanted,
         " cells failed: ", join(result.failed, ", "), "; ",
         (result.results ? folder / "results.json" : folder).string(), " says why");
}

void run_dry(const SweepOptions& options) {
  SilentDiagnostics silent;
  const auto [sweep, outlook] = preview_sweep(settings_of(options), silent);
  std::cerr << reuse_text(outlook);
  std::cout << (options.json ? dump_json(to_json(sweep, outlook)) : outlook_text(sweep, outlook));
}

void run_sweep_command(const SweepOptions& options) {
  if (options.is_template) {
    std::cout << kTemplate;
    return;
  }
  if (!options.task.empty()) {
    end_with_parent(options.parent);
    status_line().set_between_rows(std::chrono::milliseconds(500));  // the parent draws them
  }
  check(options);
  TerminalDiagnostics diagnostics;
  const SweepSettings settings = settings_of(options);
  if (!options.task.empty()) return run_task(settings, options.task, diagnostics);
  SweepFile file = read_sweep(settings.file);
  in_context(options.file, [&] { fetch_inputs(file, diagnostics); });
  if (options.is_list)
    return print_list(options,
                      read_planned_sweep(settings.file, settings.version, settings.family).plan);
  if (options.is_dry_run) return run_dry(options);
  if (options.is_collect) return finish(options, collect_sweep(settings, diagnostics), diagnostics);
  TerminalEvents events;
  finish(options, run_sweep(settings, events, diagnostics), diagnostics);
}

}  // namespace

void add_sweep(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* command = app.add_subcommand(
      "sweep", "Measure a grid of recipes, cache dtypes and scales; goes on where it was stopped");
  CLI::Option* file =
      add_text(*command, "file", options->file, "YAML file of the grid (docs/sweep.md)")
          ->required();
  command->add_flag("--template", options->is_template, "Print a file of a grid to start from")
      ->each([file](const std::string&) { file->required(false); })
      ->trigger_on_parse();
  add_text(*command, "-o,--output", options->output,
           "Folder of the results; with the same one a run goes on where it stopped");
  add_family_options(*command, options->family);
  command->add_flag("--dry-run", options->is_dry_run,
                    "Print what would be done, how long it takes and in what memory");
  command->add_flag("--list", options->is_list, "Print the ids of all cells");
  add_text(*command, "--cell", options->cells,
           "Id of a cell to do, and no tables; may be repeated. Several such runs may use "
           "one output at a time");
  CLI::Option* collect =
      command->add_flag("--collect", options->is_collect,
                        "Make the tables of what is in the output, and run nothing");
  add_number(*command, "--jobs", options->jobs,
             "Tasks at a time; 0: one for each device of --device", 0, 1024);
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
