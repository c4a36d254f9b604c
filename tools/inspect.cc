#include <iostream>

#include "commands.h"
#include "input_options.h"
#include "inspect/inspection_text.h"
#include "inspect/page_values.h"
#include "kvcal_version.h"
#include "options.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

struct InspectOptions {
  CheckpointSource checkpoint;
  FamilyChoice family;
  bool json = false, tensors = false;
  ReportFiles drawn;
};

void draw(const InspectOptions& options, const report::CheckpointReport& page) {
  TerminalDiagnostics diagnostics;
  write_report_files(options.drawn, options.checkpoint.named(checkpoint_page(page)),
                     checkpoint_plots(page), diagnostics);
}

void run_inspect(const InspectOptions& options) {
  const CheckpointSource& checkpoint = options.checkpoint;
  check_report_files(options.drawn);
  const InspectionResult found = inspect(checkpoint.path, {}, options.family);
  check_report_files(options.drawn, found.model_dir);
  for (const std::string& warning : found.quantization.warnings)
    std::cerr << "warning: " << checkpoint.name << ": " << checkpoint.named(warning) << '\n';
  if (options.drawn.is_asked_for()) draw(options, page_values(found, KVCAL_VERSION));
  if (options.json) {
    std::cout << dump_json(checkpoint.named(inspection_json(found, options.tensors)));
    return;
  }
  std::cout << checkpoint.named(inspection_text(found, has_unicode()));
  if (options.tensors) std::cout << tensors_text(found.tensors);
}

}  // namespace

void add_inspect(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show the architecture, who supports it, and the scales and sizes of every layer");
  add_checkpoint(*command, options->checkpoint, /*offline_config=*/true,
                 "Model folder, with or without scales, a config.json alone, or an id of the hub, "
                 "of which headers and scales alone are fetched")
      ->required();
  add_family_options(*command, options->family);
  command->add_flag("--tensors", options->tensors, "List every tensor: role, dtype and shape");
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  add_report_options(*command, options->drawn);
  command->add_flag("--overwrite", options->drawn.overwrite,
                    "Replace what --html and --plots name");
  command->callback([options, &run] {
    run = [options] { in_name_of(options->checkpoint, [&] { run_inspect(*options); }); };
  });
}

}  // namespace kvcal
