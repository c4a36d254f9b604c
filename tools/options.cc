#include "options.h"

#include <iostream>

#include "core/join.h"
#include "descriptors/family_file.h"
#include "input_options.h"
#include "recipe/named_recipe.h"
#include "run/conversion_text.h"
#include "run/engines_served.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {

constexpr int64_t kMostLayers = int64_t{1} << 30;  ///< the model's number is checked later

CLI::Option* add_output_options(CLI::App& command, OutputOptions& options) {
  command.add_option("--format", options.formats,
                     list_formats() + "; may be repeated, or joined by '+' for one folder");
  add_engine_option(command, options);
  add_setting(command, "--kv-cache-dtype", options.kv_cache_dtype,
              "Type of cache the scales are for: fp8_e4m3, fp8_e4m3fnuz, fp8_e5m2 or nvfp4");
  command
      .add_option("--scale-dtype", options.scale_dtype,
                  "Of the scales in the checkpoint: float32, or model, which rounds as "
                  "llm-compressor does")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "model"}));
  return add_target_options(command, options);
}

CLI::Option* add_skip_layers_option(CLI::App& command, std::vector<int64_t>& layers,
                                    const std::string& help) {
  return command.add_option("--kv-cache-dtype-skip-layers", layers, help)
      ->delimiter(',')
      ->check(CLI::Validator(
          [](const std::string& text) {
            int64_t layer = 0;
            return read_number<int64_t>(text, 0, kMostLayers, layer);
          },
          "INT in [0 - " + std::to_string(kMostLayers) + "]"));
}

void add_engine_option(CLI::App& command, OutputOptions& options) {
  command
      .add_option("--for", options.engines,
                  "Engine that must use the scales, as vllm or vllm@0.33: chooses the format for "
                  "this model, and ends with an error where the engine would lose them; may be "
                  "repeated (kvcal engines lists them)")
      ->take_all();
}

void add_recipe_option(CLI::App& command, std::string& recipe) {
  add_text(command, "--recipe", recipe,
           "Recipe in llm-compressor's form: a file, or a name: " + join(recipe_names(), ", "))
      ->capture_default_str();
}

CLI::Option* add_target_options(CLI::App& command, OutputOptions& options) {
  CLI::Option* output = add_text(command, "-o,--output", options.output,
                                 "Folder to write; appears complete or not at all");
  add_number(command, "--tp-size", options.tp_size,
             "Ranks of tensor parallelism: of kv_cache_scales.json, and over which heads' "
             "scales are tied",
             1, 1024);
  command.add_flag("--scales-only", options.scales_only,
                   "Write an overlay: scales, config.json and index without the weights, for kvcal "
                   "apply or to drop into a sharded checkpoint's folder");
  command.add_flag("--overwrite", options.overwrite, "Replace the output if it exists");
  return output;
}

void add_headroom_option(CLI::App& command, double& headroom) {
  add_number(command, "--headroom", headroom,
             "Room of the scales of K and V beyond the largest values seen: scale = headroom * "
             "amax / largest code, such as 1.25",
             1.0, kMostHeadroom);
}

void print_output(const WrittenOutput& output, const std::vector<ServedEngine>& engines, bool json,
                  const std::function<void()>& print_result) {
  if (json) {
    std::cout << dump_json(output.manifest) << std::flush;
    return;
  }
  if (is_quiet()) return;
  print_result();
  std::cout << output_text(output.folders, engines);
  std::cout.flush();  // before an error of check_engines_asked
}

void print_conversion(const ConversionRequest& request, const ConversionResult& result, bool json) {
  TerminalDiagnostics diagnostics;
  const std::vector<ServedEngine> engines =
      engines_served(result.output.folders, result.config, result.num_scaled_layers > 0,
                     request.checkpoint, request.output, diagnostics);
  print_output(result.output, engines, json,
               [&] { std::cout << conversion_text(result, most_rows()); });
  check_engines_asked(engines, request.output);
}

void add_report_options(CLI::App& command, ReportFiles& files) {
  add_text(command, "--html,--report", files.page, "Also draw it all as a page, in this file");
  add_text(command, "--plots", files.plots,
           "Also write its drawings as SVG files, into this folder");
}

CLI::Validator is_not_empty() {
  return CLI::Validator(
      [](const std::string& value) { return value.empty() ? std::string("is empty") : ""; }, "");
}

void add_family_options(CLI::App& command, FamilyChoice& family) {
  command
      .add_option_function<std::string>(
          "--family",
          [&family](const std::string& name) {
            family = in_context("--family", [&] { return choose_family(name); });
          },
          "Family to run a model_type as that kvcal does not know (kvcal families lists them); "
          "every "
          "tensor and key of config.json must be that family's")
      ->type_name("TEXT");
  // The file lives as long as the command line.
  const auto file = std::make_shared<std::optional<FamilyFile>>();
  command
      .add_option_function<std::string>(
          "--family-file",
          [&family, file](const std::string& path) {
            if (family) throw CLI::ExcludesError("--family-file", "--family");
            file->emplace(fs::path(path));
            family = (*file)->choice();
          },
          "YAML file that describes the family of such a model_type (kvcal families --template "
          "prints one)")
      ->type_name("TEXT")
      ->check(is_not_empty());
}

void add_device_options(CLI::App& command, DeviceOptions& options) {
  add_setting(command, "--device", options.device,
              "auto, cpu, reference, cuda[:N[,N...]] or hip[:N[,N...]]");
  add_setting(command, "--compute-dtype", options.compute_dtype,
              "auto, float32, bfloat16 or float16");
  add_number(command, "--threads", options.threads, "0: one for each core", 0, 4096);
}

void add_inputs_option(CLI::App& command, DeviceOptions& options) {
  add_setting(command, "--inputs", options.inputs,
              "Inputs that the checkpoint quantizes: as-served or 16bit");
}

void add_cache_options(CLI::App& command, CacheOptions& options) {
  add_setting(command, "--kv-cache-dtype", options.kv_cache_dtype,
              "auto, float32, float16, bfloat16, fp8_e4m3, fp8_e5m2, fp8_e4m3fnuz, or a "
              "simulated one: " +
                  join(kCacheFormats, ", ", [](CacheFormat format) { return name_of(format); }));
  add_model(command, "--scales", options.scales,
            "Scales to use instead of the checkpoint's: kv_cache_scales.json, a scales-only "
            "overlay, a checkpoint, a folder of rank files");
  command.add_flag("--unit-scales", options.unit_scales,
                   "Scale 1.0 in every layer, as engines use without scales");
  add_skip_layers_option(command, options.skip_layers,
                         "Layers whose cache stays in 16 bits, of every quantized cache, as 0,1");
}

}  // namespace kvcal
