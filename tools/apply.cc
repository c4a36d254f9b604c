#include "commands.h"
#include "input_options.h"
#include "kvcal_version.h"
#include "options.h"
#include "terminal/progress.h"

namespace kvcal {
namespace {

struct ApplyOptions {
  std::string overlay, checkpoint;
  ConversionRequest request;
  bool json = false;
};

void run_apply(const ApplyOptions& options) {
  TerminalDiagnostics diagnostics;
  print_conversion(options.request,
                   apply_overlay(options.overlay, options.checkpoint, options.request, diagnostics),
                   options.json);
}

}  // namespace

void add_apply(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<ApplyOptions>();
  options->request.version = KVCAL_VERSION;
  CLI::App* command =
      app.add_subcommand("apply", "Put an overlay (--scales-only) on a checkpoint, 16-bit or FP8");
  add_text(*command, "overlay", options->overlay, "Folder that --scales-only wrote")->required();
  add_model(*command, "checkpoint", options->checkpoint, "Model folder, or an id of the hub")
      ->required();
  add_family_options(*command, options->request.family);
  OutputOptions& output = options->request.output;
  add_text(*command, "-o,--output", output.output,
           "Folder to write; appears complete or not at all")
      ->required();
  command->add_flag("--overwrite", output.overwrite, "Replace the output if it exists");
  command->add_flag("--json", options->json, "Print the manifest instead of tables");
  command->callback([options, &run] { run = [options] { run_apply(*options); }; });
}

}  // namespace kvcal
