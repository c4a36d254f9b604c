#include <iostream>

#include "commands.h"
#include "core/number_text.h"
#include "core/text_table.h"
#include "input_options.h"
#include "kvcal_version.h"
#include "options.h"
#include "run/cache_advice.h"
#include "run/scales_from_statistics.h"
#include "terminal/progress.h"

namespace kvcal {
namespace {

std::string share_text(double share) {
  return share == 0 ? "0" : fixed("%.3f %%", 100 * share);
}

void print_advice(const std::vector<AdvisedCache>& caches) {
  std::cout << "caches by what K and V are expected to lose, the least first:\n";
  TextTable table({"cache", "bytes a token", "K error", "V error", "K clipped", "V clipped",
                   "K to zero", "V to zero"});
  for (const AdvisedCache& cache : caches) {
    const SideShares k = shares_of(cache.layers, &LayerCacheLoss::k);
    const SideShares v = shares_of(cache.layers, &LayerCacheLoss::v);
    table.add({cache.label.name, std::to_string(cache.label.bytes_per_token),
               share_text(k.relative_error), share_text(v.relative_error), share_text(k.clipped),
               share_text(v.clipped), share_text(k.to_zero), share_text(v.to_zero)});
  }
  std::cout << table.text();
}

void run_advice(const ScalesRequest& request, bool json) {
  if (!request.output.output.empty() || !request.model.empty())
    fail("--advise writes nothing; --output and --model are for scales");
  TerminalDiagnostics diagnostics;
  const std::vector<AdvisedCache> caches =
      advise_caches(scales_from_statistics(request, diagnostics));
  if (json)
    std::cout << dump_json(to_json(caches));
  else
    print_advice(caches);
}

void run_scales(const ScalesRequest& request, bool json) {
  TerminalDiagnostics diagnostics;
  const CalibrationResult result = scales_from_statistics(request, diagnostics);
  const std::vector<ServedEngine> engines =
      engines_served(result.output.folders, result.config, !result.calibration.layers.empty(),
                     request.model, request.output, diagnostics);
  print_output(result.output, engines, json, [&] { print_calibration(result); });
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
