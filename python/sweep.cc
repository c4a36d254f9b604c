#include <unistd.h>

#include "core/join.h"
#include "kvcal_version.h"
#include "python_commands.h"
#include "run/report_files.h"
#include "sweep/sweep_inputs.h"
#include "sweep/sweep_run.h"

namespace kvcal {
namespace {

/// The course of a sweep as notes, and how many tasks have ended as progress.
class ReportedEvents : public SweepEvents {
 public:
  explicit ReportedEvents(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}
  void planned(const Sweep&, const SweepOutlook& outlook) override {
    num_tasks_ = static_cast<int64_t>(outlook.num_tasks);
    report();
  }
  void started(size_t, size_t, const std::string& description) override {
    diagnostics_.inform(description);
  }
  void progressed(const std::string&) override { report(); }
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

/// A task runs in a process of its own, which is the program: it ends with this process.
Command child_command(const std::string& program, const SweepSettings& settings,
                      const std::string& task, const DeviceOptions& device) {
  Command command{
      program,
      {program, "sweep", settings.file.string(), "--output", settings.output.string(), "--task",
       task, "--parent", std::to_string(::getpid()), "--device", device.device, "--threads",
       std::to_string(device.threads), "--compute-dtype", device.compute_dtype}};
  if (settings.family)
    command.words.insert(command.words.end(), {settings.family.option, settings.family.value});
  return command;
}

/// Writes the page of a whole sweep.
Json finish(const SweepSettings& settings, const SweepResult& result, Diagnostics& diagnostics) {
  Json json{{"results", nullptr}, {"failed", result.failed}};
  if (result.results) {
    const report::SweepReport& report = result.results->report;
    write_report_files({.page = (settings.output / "report.html").string(),
                        .plots = (settings.output / "plots").string(),
                        .overwrite = true},
                       sweep_page(report), sweep_plots(report), diagnostics);
    json["results"] = result.results->json;
  }
  if (!result.failed.empty())
    json["problem"] =
        std::to_string(result.failed.size()) + " of " + std::to_string(result.num_wanted) +
        " cells failed: " + join(result.failed, ", ") + "; " +
        (result.results ? settings.output / "results.json" : settings.output).string() +
        " says why";
  return json;
}

}  // namespace

Json python_sweep(Arguments& arguments, Diagnostics& diagnostics) {
  SweepSettings settings;
  std::string file, output, program;
  bool dry_run = false;
  const FamilyArgument family(arguments, settings.family);
  arguments.read("file", file);
  arguments.read("output", output);
  arguments.read("cells", settings.cells);
  arguments.read("jobs", settings.jobs, 0, 1024);
  arguments.read("dry_run", dry_run);
  arguments.read("program", program);
  read_device(arguments, settings.device);
  arguments.expect_all_read();
  settings.file = file;
  settings.output = output;
  settings.version = KVCAL_VERSION;
  settings.command = [&](const std::string& task, const DeviceOptions& device) {
    return child_command(program, settings, task, device);
  };
  SweepFile sweep = read_sweep(settings.file);
  in_context(file, [&] { fetch_inputs(sweep, diagnostics); });
  if (dry_run) {
    const auto [planned, outlook] = preview_sweep(settings, diagnostics);
    return to_json(planned, outlook);
  }
  if (output.empty()) fail("output: is missing, expected the folder of the results");
  ReportedEvents events(diagnostics);
  return finish(settings, run_sweep(settings, events, diagnostics), diagnostics);
}

}  // namespace kvcal
