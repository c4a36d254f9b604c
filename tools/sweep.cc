#include "sweep/sweep_run.h"

#include <unistd.h>

#include <iostream>

#include "commands.h"
#include "core/error.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "kvcal_version.h"
#include "shared_options.h"
#include "sweep/sweep_inputs.h"
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

/// The course of a sweep on stderr; how far a task is only on a terminal, in one line. With --quiet
/// failures alone.
class TerminalEvents : public SweepEvents {
 public:
  void planned(const Sweep& sweep, const RemainingWork& remaining) override {
    if (is_quiet()) return;
    std::cerr << reuse_text(remaining) << remaining_text(sweep, remaining);
  }
  void started(size_t number, size_t num_tasks, const std::string& description) override {
    said("[" + std::to_string(number) + "/" + std::to_string(num_tasks) + "] " + description);
  }
  void said(const std::string& line) override {
    if (!is_quiet()) std::cerr << line + "\n";
  }
  void progressed(size_t number, const std::string& line) override {
    if (is_quiet()) return;
    const std::string text = "        task " + std::to_string(number) + ", " + line;
    if (status_line().is_drawn())
      status_line().show(text);
    else
      status_line().add_row(text);
  }
  void failed(const std::string& why) override { std::cerr << "failed: " + why + "\n"; }
  void ended(double seconds, double seconds_left) override {
    said("        " + time_text(seconds) + ", about " + time_text(seconds_left) + " left");
  }
};

/// The course of a sweep as notes, and how many tasks have ended as progress.
class ReportedEvents : public SweepEvents {
 public:
  explicit ReportedEvents(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}
  void planned(const Sweep&, const RemainingWork& remaining) override {
    num_tasks_ = static_cast<int64_t>(remaining.num_tasks);
    report();
  }
  void started(size_t, size_t, const std::string& description) override {
    diagnostics_.inform(description);
  }
  void progressed(size_t, const std::string&) override { report(); }
  void said(const std::string& line) override { diagnostics_.inform(line); }
  void failed(const std::string& why) override { diagnostics_.warn(why); }
  void ended(double, double) override {
    ++num_ended_;
    report();
  }

 private:
  void report() { diagnostics_.progress("sweep", num_ended_, num_tasks_, "tasks"); }

  Diagnostics& diagnostics_;
  int64_t num_ended_ = 0, num_tasks_ = 0;
};

class SweepCommand : public Subcommand {
 public:
  SweepCommand();
  void run() override;
  Json call(Diagnostics& diagnostics) override;

 private:
  void check() const;
  Command child_command(const std::string& task, const DeviceOptions& device) const;
  void fetch_models(Diagnostics& diagnostics) const;
  void run_child();
  void print_list() const;
  void run_dry() const;
  std::string failure(const SweepResult& result) const;
  void write_page(const SweepResult& result, Diagnostics& diagnostics) const;
  void finish(const SweepResult& result, Diagnostics& diagnostics) const;

  SweepSettings settings_;
  std::string task_;     ///< of a child: the one task that it does
  pid_t parent_ = 0;     ///< of a child: the process that started it
  std::string program_;  ///< for children; empty: this one
  bool is_dry_run_ = false, is_list_ = false, is_collect_ = false, is_template_ = false;
  bool json_ = false;
};

SweepCommand::SweepCommand()
    : Subcommand(
          "sweep",
          "Measure a grid of recipes, cache dtypes and scales; goes on where it was stopped",
          {{"A file to start from: name the model in it", "kvcal sweep --template >grid.yaml"},
           {"How long it would take", "kvcal sweep grid.yaml --dry-run"},
           {"Run it; the same command goes on after an interruption",
            "kvcal sweep grid.yaml -o Results"}}) {
  python = {
      "sweep", "SweepResults",
      R"(Evaluates the grid of a YAML file. With the same output it goes on where it was stopped.

Tasks run in processes of their own, so that a crash of one leaves the others alone; progress counts tasks. dry_run:
`results` has the plan with its time and memory. Raises `CheckFailed` where cells failed.)"};
  settings_.version = KVCAL_VERSION;
  settings_.command = [this](const std::string& task, const DeviceOptions& device) {
    return child_command(task, device);
  };
  options.text("file", settings_.file, "YAML file of the grid (docs/sweep.md)")
      .of_kind(ValueKind::kFile)
      .required();
  declare_family(options, settings_.family);
  options.group(kCells);
  options.flag("--template", is_template_, "Print a file of a grid to start from")
      .frees("file")
      .program_only();
  options.flag("--list", is_list_, "Print the ids of all cells").program_only();
  options
      .list("--cell", settings_.cells,
            "Id of a cell to do, and no tables; may be repeated. Several such runs may use one "
            "output at a time")
      .python("cells", "Iterable[str]");
  options
      .flag("--collect", is_collect_, "Make the tables of what is in the output, and run nothing")
      .excludes({"--device", "--threads", "--jobs"})
      .program_only();
  options.group(kOutput);
  options
      .text("-o,--output", settings_.output,
            "Folder of the results; with the same one a run goes on where it stopped")
      .written(ValueKind::kFolder);
  declare_device(options, settings_.device, false);
  options.number("--jobs", settings_.jobs, "Tasks at a time; 0: one for each device of --device", 0,
                 1024);
  options.text("--program", program_, "For the tasks").internal();
  options.text("--task", task_, "Of a child of this command")
      .needs("--parent")
      .hidden()
      .program_only();
  options.number("--parent", parent_, "Process that started a child", 1, INT32_MAX)
      .hidden()
      .program_only();
  options.group(kPrinting);
  options.flag("--dry-run", is_dry_run_,
               "Print what would be done, how long it takes and in what memory");
  declare_json(options, json_, "Print JSON instead of a table");
  declare_verbosity(options);
}

void SweepCommand::check() const {
  if (is_dry_run_ + is_list_ + is_collect_ > 1)
    fail_usage("--dry-run, --list and --collect exclude each other");
  if (!settings_.cells.empty() && (is_collect_ || is_list_))
    fail_usage("--cell and ", is_collect_ ? "--collect" : "--list", " exclude each other");
  if (settings_.output.empty() && !is_dry_run_ && !is_list_)
    fail_usage("needs ", options.shown("--output"), ", the folder of the results");
}

/// A child is the program again, with --task.
Command SweepCommand::child_command(const std::string& task, const DeviceOptions& device) const {
  const std::string self = "/proc/self/exe";
  const std::string name = program_.empty() ? fs::read_symlink(self).string() : program_;
  Command command{program_.empty() ? self : program_,
                  {name, "sweep", settings_.file, "--output", settings_.output, "--task", task,
                   "--parent", std::to_string(::getpid()), "--device", device.device, "--threads",
                   std::to_string(device.threads), "--compute-dtype", device.compute_dtype}};
  if (settings_.family)
    command.words.insert(command.words.end(), {settings_.family.option, settings_.family.value});
  return command;
}

void SweepCommand::fetch_models(Diagnostics& diagnostics) const {
  SweepFile sweep = read_sweep(settings_.file);
  in_context(settings_.file, [&] { fetch_inputs(sweep, diagnostics); });
}

void SweepCommand::print_list() const {
  const Sweep sweep = read_planned_sweep(settings_.file, settings_.version, settings_.family);
  Json ids = Json::array();
  for (const Cell& cell : sweep.plan.cells) ids.push_back(cell.id);
  if (json_)
    std::cout << dump_json(ids);
  else
    std::cout << join(sweep.plan.cells, "", [](const Cell& cell) { return cell.id + '\n'; });
}

/// The reason why not all is done; empty: all is.
std::string SweepCommand::failure(const SweepResult& result) const {
  if (result.failed.empty()) return "";
  const fs::path folder = settings_.output;
  return std::to_string(result.failed.size()) + " of " + counted(result.num_wanted, "cell") +
         " failed: " + join(result.failed, ", ") + "; " +
         (result.results ? folder / "results.json" : folder).string() + " says why";
}

/// Writes the page of a whole sweep; a run of some cells has none.
void SweepCommand::write_page(const SweepResult& result, Diagnostics& diagnostics) const {
  if (!result.results) return;
  const report::SweepReport& report = result.results->report;
  const fs::path folder = settings_.output;
  write_report_files({.page = (folder / "report.html").string(),
                      .plots = (folder / "plots").string(),
                      .overwrite = true},
                     sweep_page(report), sweep_plots(report), diagnostics);
}

/// Throws Error where cells failed.
void SweepCommand::finish(const SweepResult& result, Diagnostics& diagnostics) const {
  write_page(result, diagnostics);
  if (result.results)
    std::cout << (json_ ? dump_json(result.results->json)
                        : cells_text(result.results->report.cells, most_rows()))
              << std::flush;
  if (const std::string why = failure(result); !why.empty()) fail(why);
}

void SweepCommand::run_dry() const {
  SilentDiagnostics silent;
  const auto [sweep, remaining] = preview_sweep(settings_, silent);
  std::cerr << reuse_text(remaining);
  std::cout << (json_ ? dump_json(to_json(sweep, remaining)) : remaining_text(sweep, remaining));
}

void SweepCommand::run_child() {
  end_with_parent(parent_);
  status_line().set_between_rows(std::chrono::milliseconds(500));  // the parent draws them
  check();
  TerminalDiagnostics diagnostics;
  run_task(settings_, task_, diagnostics);
}

void SweepCommand::run() {
  if (is_template_) {
    std::cout << kTemplate;
    return;
  }
  if (!task_.empty()) return run_child();
  check();
  TerminalDiagnostics diagnostics;
  fetch_models(diagnostics);
  if (is_list_) return print_list();
  if (is_dry_run_) return run_dry();
  if (is_collect_) return finish(collect_sweep(settings_, diagnostics), diagnostics);
  TerminalEvents events;
  finish(run_sweep(settings_, events, diagnostics), diagnostics);
}

Json SweepCommand::call(Diagnostics& diagnostics) {
  check();
  fetch_models(diagnostics);
  Json json{{"results", nullptr}, {"failed", Json::array()}};
  if (is_dry_run_) {
    const auto [sweep, remaining] = preview_sweep(settings_, diagnostics);
    json["results"] = to_json(sweep, remaining);
    return json;
  }
  ReportedEvents events(diagnostics);
  const SweepResult result = run_sweep(settings_, events, diagnostics);
  write_page(result, diagnostics);
  if (result.results) json["results"] = result.results->json;
  json["failed"] = result.failed;
  if (const std::string why = failure(result); !why.empty()) json["problem"] = why;
  return json;
}

}  // namespace

const MakeSubcommand kSweep = make_subcommand<SweepCommand>;

}  // namespace kvcal
