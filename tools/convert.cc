#include <iostream>

#include "commands.h"
#include "core/error.h"
#include "core/usage_error.h"
#include "kvcal_version.h"
#include "run/calibration_result.h"
#include "run/convert_checkpoint.h"
#include "run/scales_from_statistics.h"
#include "run/scored_scales.h"
#include "shared_options.h"
#include "terminal/progress.h"
#include "terminal/session.h"

// Scales that are there already, in another checkpoint, form or recipe: scales, convert, apply.

namespace kvcal {
namespace {

class ScalesCommand : public Subcommand {
 public:
  ScalesCommand();
  void run() override;
  Json call(Diagnostics& diagnostics) override;

 private:
  std::vector<ServedEngine> engines_of(const CalibrationResult& result,
                                       Diagnostics& diagnostics) const;
  void run_advice() const;

  ScalesRequest request_;
  bool json_ = false, advises_ = false;
};

ScalesCommand::ScalesCommand()
    : Subcommand("scales",
                 "Make scales from statistics that calibrate kept, without a forward pass",
                 {{"Scales of another recipe from a run that kept its statistics",
                   "kvcal scales --statistics seen.safetensors --recipe fp8_kv_mse \\\n"
                   "      --model MODEL -o FP8-KV-mse"}}) {
  python = {
      "scales", "Output",
      R"(Makes the scales of a recipe from statistics that `calibrate(save_statistics=...)` kept, without a forward pass.

With `model` and `output` it writes the checkpoint, else the manifest alone is returned.)"};
  request_.version = KVCAL_VERSION;
  options.group(kModelAndData);
  declare_model(options, "--model", request_.model, "The statistics' model, to write an output of");
  options.text("--statistics", request_.statistics, "File of calibrate --save-statistics")
      .of_kind(ValueKind::kFile)
      .required()
      .placed_in_python();
  declare_family(options, request_.family);
  declare_recipe(options, request_.recipe);
  declare_scaled_cache(options, request_.output);
  declare_scale_options(options, request_.output, request_.headroom);
  declare_engine(options, request_.output);
  declare_output(options, request_.output.output);
  declare_format(options, request_.output, format_help());
  declare_scales_only(options, request_.output);
  declare_overwrite(options, request_.output.overwrite);
  done = std::make_unique<DoneOutput>(options, request_.output.output, request_.output.overwrite);
  declare_card(options, request_.output.card);
  options.group(kPrinting);
  options
      .flag("--advise", advises_,
            "Instead: rank every cache that engines offer by what statistics say it loses")
      .program_only();
  declare_json(options, json_, "Print the manifest, or the advice, instead of a table");
  declare_verbosity(options);
}

std::vector<ServedEngine> ScalesCommand::engines_of(const CalibrationResult& result,
                                                    Diagnostics& diagnostics) const {
  return engines_served(result.output.folders, result.config, !result.calibration.layers.empty(),
                        request_.model, request_.output, diagnostics);
}

void ScalesCommand::run_advice() const {
  if (!request_.output.output.empty() || !request_.model.empty())
    fail_usage("--advise writes nothing; --output and --model are for scales");
  TerminalDiagnostics diagnostics;
  const std::vector<AdvisedCache> caches =
      advise_caches(scales_from_statistics(request_, diagnostics));
  std::cout << (json_ ? dump_json(to_json(caches)) : advice_text(caches, most_rows()));
}

void ScalesCommand::run() {
  if (advises_) return run_advice();
  TerminalDiagnostics diagnostics;
  const CalibrationResult result = scales_from_statistics(request_, diagnostics);
  warn_of_scales(result.output, diagnostics);
  const std::vector<ServedEngine> engines = engines_of(result, diagnostics);
  print_output(result.output, engines, request_.output, json_,
               [&] { std::cout << calibration_text(result, is_verbose()); });
  check_engines_asked(engines, request_.output);
}

Json ScalesCommand::call(Diagnostics& diagnostics) {
  const CalibrationResult result = scales_from_statistics(request_, diagnostics);
  warn_of_scales(result.output, diagnostics);
  return output_json(result.output, engines_of(result, diagnostics), request_.output);
}

/// Has a checkpoint, and writes one with other scales.
class ConversionCommand : public Subcommand {
 public:
  void run() override;
  Json call(Diagnostics& diagnostics) override;

 protected:
  ConversionCommand(std::string name, std::string help, std::vector<ExampleDescription> examples)
      : Subcommand(std::move(name), std::move(help), std::move(examples)) {
    request_.version = KVCAL_VERSION;
  }
  void declare_checkpoint() {
    declare_model(options, "checkpoint", request_.checkpoint, "Model folder, or an id of the hub")
        .required();
  }

  ConversionRequest request_;
  bool json_ = false;

 private:
  virtual ConversionResult convert(Diagnostics& diagnostics) const = 0;
  std::vector<ServedEngine> engines_of(const ConversionResult& result,
                                       Diagnostics& diagnostics) const {
    return engines_served(result.output.folders, result.config, result.num_scaled_layers > 0,
                          request_.checkpoint, request_.output, diagnostics);
  }
};

/// Prints the source, what each layer loses, and the written folders.
void ConversionCommand::run() {
  TerminalDiagnostics diagnostics;
  const ConversionResult result = convert(diagnostics);
  const std::vector<ServedEngine> engines = engines_of(result, diagnostics);
  print_output(result.output, engines, request_.output, json_,
               [&] { std::cout << conversion_text(result, is_verbose()); });
  check_engines_asked(engines, request_.output);
}

Json ConversionCommand::call(Diagnostics& diagnostics) {
  const ConversionResult result = convert(diagnostics);
  Json json = output_json(result.output, engines_of(result, diagnostics), request_.output);
  json["losses"] = Json::array();
  for (const FormatLosses& format : result.losses)
    for (const LayerLoss& loss : format.layers)
      json["losses"].push_back({{"format", format.format},
                                {"layer", loss.layer},
                                {"k_octaves", loss.k_octaves},
                                {"v_octaves", loss.v_octaves}});
  return json;
}

class ConvertCommand : public ConversionCommand {
 public:
  ConvertCommand();
  std::string missing() const override {
    const bool has_format = !request_.output.formats.empty() || !request_.output.engines.empty();
    return has_format ? "" : options.shown("--format") + " or " + options.shown("--for");
  }

 private:
  ConversionResult convert(Diagnostics& diagnostics) const override {
    return convert_checkpoint(request_, diagnostics);
  }
};

ConvertCommand::ConvertCommand()
    : ConversionCommand(
          "convert", "Write a checkpoint's KV scales, and its FP8 weights, in another format",
          {{"Two formats, each in a folder of its own",
            "kvcal convert FP8-KV --format modelopt --format tgi -o For-Both"},
           {"The scales alone, for kvcal apply",
            "kvcal convert FP8-KV --format compressed-tensors --scales-only -o Scales"}}) {
  python = {"convert", "Output",
            "Writes a checkpoint's KV scales, and its FP8 weights, in other formats: `format`, or "
            "those that `engine` reads."};
  declare_checkpoint();
  declare_family(options, request_.family);
  options.group(kCacheAndScales);
  declare_model(options, "--scales", request_.scales,
                "Where the scales are from instead of the checkpoint: the file of scales-json, "
                "lightllm or onnxruntime-genai, a folder of TensorRT-LLM rank files, an overlay, "
                "or another checkpoint")
      .of_kind(ValueKind::kPath);
  options
      .text("--strategy", request_.strategy,
            "tensor merges the scales of heads; attn_head gives each head that of its rank; "
            "default: as the source has them, ranks merged unless scales-json alone is written")
      .only({"tensor", "attn_head"});
  options
      .text("--fp8-dialect", request_.dialect,
            "What the scales are for: fn (E4M3FN) or fnuz (E4M3FNUZ, MI300), where the format and "
            "its readers know both")
      .only({"fn", "fnuz"});
  declare_engine(options, request_.output);
  declare_output(options, request_.output.output).required();
  declare_format(options, request_.output,
                 "compressed-tensors, fp8, modelopt, quark, tgi, lightllm, onnxruntime-genai or "
                 "scales-json; may be repeated, or joined by '+' for one folder; needed without "
                 "--for")
      .old_name("--to");
  declare_scales_only(options, request_.output);
  declare_overwrite(options, request_.output.overwrite);
  done = std::make_unique<DoneOutput>(options, request_.output.output, request_.output.overwrite);
  declare_card(options, request_.output.card);
  declare_json(options, json_, "Print the manifest instead of tables");
  declare_verbosity(options);
}

class ApplyCommand : public ConversionCommand {
 public:
  ApplyCommand();

 private:
  ConversionResult convert(Diagnostics& diagnostics) const override {
    return apply_overlay(overlay_, request_.checkpoint, request_, diagnostics);
  }

  std::string overlay_;
};

ApplyCommand::ApplyCommand()
    : ConversionCommand("apply", "Put an overlay (--scales-only) on a checkpoint, 16-bit or FP8",
                        {{"Scales on a checkpoint that another tool quantized",
                          "kvcal apply Scales Llama-W4A16 -o W4A16-FP8-KV"}}) {
  python = {"apply", "Output",
            "Puts an overlay, which `scales_only=True` wrote, on a checkpoint of the same model."};
  options.text("overlay", overlay_, "Folder that --scales-only wrote")
      .of_kind(ValueKind::kFolder)
      .required();
  declare_checkpoint();
  declare_family(options, request_.family);
  declare_output(options, request_.output.output).required();
  declare_overwrite(options, request_.output.overwrite);
  done = std::make_unique<DoneOutput>(options, request_.output.output, request_.output.overwrite);
  declare_card(options, request_.output.card);
  declare_json(options, json_, "Print the manifest instead of tables");
  declare_quiet(options);
}

}  // namespace

const MakeSubcommand kScales = make_subcommand<ScalesCommand>;
const MakeSubcommand kConvert = make_subcommand<ConvertCommand>;
const MakeSubcommand kApply = make_subcommand<ApplyCommand>;

}  // namespace kvcal
