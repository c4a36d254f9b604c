#include <iostream>

#include "calib/derive.h"
#include "calib/quant_plan.h"
#include "commands.h"
#include "convert/kept_quantization.h"
#include "core/file.h"
#include "export/checkpoint_copy.h"
#include "export/manifest.h"
#include "export/statistics_file.h"
#include "family/model_config.h"
#include "kvcal_version.h"
#include "output_options.h"
#include "progress.h"

namespace kvcal {
namespace {

struct ScalesOptions {
  std::string statistics, recipe, model;
  OutputOptions output;
  bool json = false;
};

/// The statistics' own model, or one that must be it.
ModelConfig config_of(const ScalesOptions& options, const Statistics& statistics,
                      const std::optional<ModelDir>& model) {
  if (!model)
    return in_context(options.statistics, [&] {
      return in_context(
          "config", [&] { return parse_model_config(parse_json(statistics.origin.model_config)); });
    });
  if (model->sha256() != statistics.origin.model_sha256)
    fail(options.model, ": is not the model of ", options.statistics, ", which was made with '",
         statistics.origin.model_path, "' (sha256 ", statistics.origin.model_sha256, ")");
  return read_model_config(*model);
}

Json manifest_of(const ScalesOptions& options, const Statistics& statistics,
                 const ModelConfig& config, const Recipe& recipe, const Calibration& calibration,
                 const WrittenCheckpoint& written) {
  ManifestInput input;
  input.version = KVCAL_VERSION;
  // As a run, which reads no data where nothing is calibrated.
  if (needs_data(calibration.plan)) input.origin = statistics.origin;
  input.origin.model_path = options.model.empty() ? statistics.origin.model_path : options.model;
  input.origin.model_type = config.model_type;
  input.origin.model_sha256 = statistics.origin.model_sha256;
  input.recipe_path = options.recipe;
  input.leave_out_machine = true;
  return make_manifest(input, recipe, calibration, written);
}

/// Model, output and format belong together.
void settle_output(ScalesOptions& options) {
  if (options.output.output.empty() != options.model.empty())
    fail(options.model.empty() ? "--output needs the model it is written for, give --model"
                               : "--model is for what is written, give --output");
  if (options.output.formats.empty() && !options.model.empty())
    options.output.formats.emplace_back("compressed-tensors");
  if (!options.output.formats.empty() && options.model.empty())
    fail("--format is for what is written, give --model and --output");
}

void run_scales(ScalesOptions options) {
  TerminalDiagnostics diagnostics;
  settle_output(options);
  const OutputFormats formats(options.output);
  const Recipe recipe = read_recipe(options.recipe);
  const Statistics statistics = read_statistics(options.statistics);
  std::optional<ModelDir> model;
  if (!options.model.empty()) model.emplace(options.model);
  const ModelConfig config = config_of(options, statistics, model);
  const QuantPlan plan = in_context(options.recipe, [&] {
    return resolve_plan(recipe, config, diagnostics,
                        model ? unrun_modules(*model, config) : std::vector<UnrunModule>());
  });
  const KvDType kv_dtype = parse_fp8_cache_dtype(options.output.kv_cache_dtype);
  const Calibration calibration = in_context(options.statistics, [&] {
    return derive(statistics, plan, config,
                  {.kv_dtype = kv_dtype,
                   .ties_latent = options.output.scale_dtype != "model",
                   .all_experts = statistics.origin.all_experts},
                  diagnostics);
  });
  check_calibration(calibration);
  const auto manifest = [&](const WrittenCheckpoint& written) {
    return dump_json(manifest_of(options, statistics, config, recipe, calibration, written));
  };
  if (!model) {
    if (options.json) std::cout << manifest({});
    if (!options.json) print_calibration(calibration, {});
    return;
  }
  const auto kept = kept_weights(*model, config);
  const ExportInput input{.model = *model,
                          .calibration = calibration,
                          .recipe = &recipe,
                          .kept = kept ? &*kept : nullptr};
  formats.check(input);
  check_target(*model, options.output.output);
  AtomicDirectory output(options.output.output, options.output.overwrite);
  const WrittenCheckpoint written = formats.write(input, output.path(), 0, diagnostics);
  const std::string text = manifest(written);
  write_text_file(output.path() / kManifestName, text);
  output.commit();
  formats.tell_notes(input, diagnostics);
  if (options.json) {
    std::cout << text;
    return;
  }
  print_calibration(calibration, written);
  print_folders(formats, config);
}

}  // namespace

void add_scales(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<ScalesOptions>();
  CLI::App* command = app.add_subcommand(
      "scales", "Make scales from statistics that calibrate kept, without a forward pass");
  command->add_option("--statistics", options->statistics, "File of calibrate --save-statistics")
      ->required()
      ->check(is_not_empty());
  command->add_option("--recipe", options->recipe, "Recipe in llm-compressor's form")
      ->required()
      ->check(is_not_empty());
  command->add_option("--model", options->model, "The statistics' model, to write an output of")
      ->check(is_not_empty());
  add_output_options(*command, options->output);
  command->add_flag("--json", options->json, "Print the manifest instead of a table");
  command->callback([options, &run] { run = [options] { run_scales(*options); }; });
}

}  // namespace kvcal
