#include <iostream>

#include "commands.h"
#include "input_options.h"
#include "kvcal_version.h"
#include "options.h"
#include "run/cache_advice.h"
#include "run/caches_text.h"
#include "run/calibration_text.h"
#include "run/engines_served.h"
#include "run/scales_from_statistics.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

void run_advice(const ScalesRequest& request, bool json) {
  if (!request.output.output.empty() || !request.model.empty())
    fail("--advise writes nothing; --output and --model are for scales");
  TerminalDiagnostics diagnostics;
  const std::vector<AdvisedCache> caches =
      advise_caches(scales_from_statistics(request, diagnostics));
  std::cout << (json ? dump_json(to_json(caches)) : advice_text(caches, most_rows()));
}

void run_scales(const ScalesRequest& request, bool json) {
  TerminalDiagnostics diagnostics;
  const CalibrationResult result = scales_from_statistics(request, diagnostics);
  const std::vector<ServedEngine> engines =
      engines_served(result.output.folders, result.config, !result.calibration.layers.empty(),
                     request.model, request.output, diagnostics);
  print_output(result.output, engines, json,
               [&] { std::cout << calibration_text(result, most_rows()); });
  check_engines_asked(engines, request.output);
}

}  // namespace

void add_scales(CLI::App& app, std::function<void()>& run) {
  auto request = std::make_shared<ScalesRequest>();
  auto json = std::make_shared<bool>(false), advises = std::make_shared<bool>(false);
  request->version = KVCAL_VERSION;
  CLI::App* command = app.add_subcommand(
      "scales", "Make scales from statistics that calibrate kept, without a forward pass");
  add_text(*command, "--statistics", request->statistics, "File of calibrate --save-statistics")
      ->required();
  add_recipe_option(*command, request->recipe);
  add_model(*command, "--model", request->model, "The statistics' model, to write an output of");
  add_family_options(*command, request->family);
  add_output_options(*command, request->output);
  add_headroom_option(*command, request->headroom);
  command->add_flag("--advise", *advises,
                    "Instead: rank every cache that engines offer by what statistics say it loses");
  command->add_flag("--json", *json, "Print the manifest, or the advice, instead of a table");
  command->callback([request, json, advises, &run] {
    run = [request, json, advises] {
      *advises ? run_advice(*request, *json) : run_scales(*request, *json);
    };
  });
}

}  // namespace kvcal
