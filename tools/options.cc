#include "options.h"

#include <algorithm>
#include <iostream>
#include <limits>

#include "core/join.h"
#include "core/number_text.h"
#include "core/text_table.h"
#include "descriptors/family_file.h"
#include "input_options.h"
#include "recipe/named_recipe.h"
#include "run/closing_lines.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

/// The least and the largest of some scales: "0.01 to 0.2".
class Spread {
 public:
  void add(float value) {
    least_ = std::min(least_, value);
    largest_ = std::max(largest_, value);
  }
  void add(const KvTensorCalibration& side) {
    for (const Scale& scale : side.scales) add(scale.value);
  }
  std::string text() const {
    return short_float(static_cast<double>(least_)) + " to " +
           short_float(static_cast<double>(largest_));
  }

 private:
  float least_ = std::numeric_limits<float>::infinity(), largest_ = 0.0f;
};

std::string scale_text(const KvTensorCalibration& side, bool ignored) {
  if (ignored) return "ignored";
  if (side.scales.size() == 1) return short_float(static_cast<double>(side.scales[0].value));
  return std::to_string(side.scales.size()) + " heads";
}

void print_attention_summary(const Calibration& calibration) {
  Spread k, v;
  for (const AttentionCalibration& layer : calibration.layers) {
    if (layer.ignored) continue;
    k.add(layer.k);
    v.add(layer.v);
  }
  std::cout << calibration.layers.size() << " layers: k_scale " << k.text() << ", v_scale "
            << v.text() << " (--verbose lists them)\n";
}

void print_attention(const Calibration& calibration) {
  if (calibration.layers.size() > most_rows()) return print_attention_summary(calibration);
  const bool has_queries = std::ranges::any_of(
      calibration.layers, [](const AttentionCalibration& layer) { return layer.q.has_value(); });
  std::vector<std::string> head{"layer",  "k_scale",   "v_scale",  "k_amax",
                                "v_amax", "k_clipped", "v_clipped"};
  if (has_queries) head.insert(head.begin() + 1, "q_scale");
  TextTable table(head);
  const auto clipped = [](const KvTensorCalibration& side) {
    if (!side.num_saturated) return std::string("-");
    return percent(static_cast<double>(*side.num_saturated) /
                   static_cast<double>(side.statistics.num_values));
  };
  const auto amax = [](const KvTensorCalibration& side) {
    return short_float(static_cast<double>(side.statistics.range().amax().value));
  };
  for (const AttentionCalibration& layer : calibration.layers) {
    std::vector<std::string> row{std::to_string(layer.layer),
                                 scale_text(layer.k, layer.ignored),
                                 scale_text(layer.v, layer.ignored),
                                 amax(layer.k),
                                 amax(layer.v),
                                 clipped(layer.k),
                                 clipped(layer.v)};
    if (has_queries)
      row.insert(row.begin() + 1, layer.q ? scale_text(*layer.q, layer.ignored) : "ignored");
    table.add(row);
  }
  std::cout << table.text();
}

/// A row for all Linears of one name, such as q_proj.
void print_linears_summary(const std::vector<LinearCalibration>& linears) {
  struct Kind {
    std::string name;
    size_t count = 0;
    Spread scale = {}, amax = {};
  };
  std::vector<Kind> kinds;
  for (const LinearCalibration& linear : linears) {
    const std::string name = linear.module.substr(linear.module.rfind('.') + 1);
    auto kind = std::ranges::find(kinds, name, &Kind::name);
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), Kind{.name = name});
    ++kind->count;
    kind->scale.add(linear.input_scale.value);
    kind->amax.add(linear.input_amax.value);
  }
  TextTable table({"modules", "count", "input_scale", "input_amax"});
  for (const Kind& kind : kinds)
    table.add({kind.name, std::to_string(kind.count), kind.scale.text(), kind.amax.text()});
  std::cout << table.text();
  std::cout << linears.size() << " inputs have static scales (--verbose lists them)\n";
}

void print_linears(const std::vector<LinearCalibration>& linears) {
  if (linears.size() > most_rows()) return print_linears_summary(linears);
  TextTable table({"module", "input_scale", "input_amax", "tokens"});
  for (const LinearCalibration& linear : linears)
    table.add({linear.module, short_float(static_cast<double>(linear.input_scale.value)),
               short_float(static_cast<double>(linear.input_amax.value)),
               std::to_string(linear.input_tokens)});
  std::cout << table.text();
}

void print_folders(const std::vector<WrittenFolder>& folders) {
  for (const WrittenFolder& folder : folders)
    std::cout << "wrote " << folder.format << (folder.is_overlay ? " (overlay)" : "") << ": "
              << folder.path.string() << '\n';
}

void print_engines_served(const std::vector<ServedEngine>& engines) {
  std::vector<std::string> unknown;
  for (const ServedEngine& engine : engines)
    if (engine.fate == Fate::kNotKnown)
      unknown.push_back(engine.title);
    else
      std::cout << engine.title << ": " << name_of(engine.fate) << ": " << engine.note << '\n';
  if (!unknown.empty())
    std::cout << "not known: " << join(unknown, ", ")
              << " (not run with such models; kvcal verify tells what their rules say)\n";
}

}  // namespace

CLI::Option* add_output_options(CLI::App& command, OutputOptions& options) {
  command.add_option("--format", options.formats,
                     list_formats() + "; may be repeated, or joined by '+' for one folder");
  add_engine_option(command, options);
  add_setting(command, "--kv-cache-dtype", options.kv_cache_dtype,
              "FP8 type the scales are for: fp8_e4m3, fp8_e4m3fnuz or fp8_e5m2");
  command
      .add_option("--scale-dtype", options.scale_dtype,
                  "Of the scales in the checkpoint: float32, or model, which rounds as "
                  "llm-compressor does")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "model"}));
  return add_target_options(command, options);
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

void print_lines(const std::vector<std::pair<std::string, std::string>>& lines) {
  for (const auto& [label, text] : lines)
    std::cout << label << std::string(12 - label.size(), ' ') << text << '\n';
}

void print_calibration(const CalibrationResult& result) {
  const Calibration& calibration = result.calibration;
  if (!calibration.layers.empty()) print_attention(calibration);
  if (!calibration.linears.empty()) print_linears(calibration.linears);
  const auto& weights = result.output.checkpoint.weights;
  if (!weights.empty())
    std::cout << weights.size() << " weights in FP8, " << calibration.plan.unquantized.size()
              << " left as they were\n";
  print_lines(closing_lines(result));
}

void print_output(const WrittenOutput& output, const std::vector<ServedEngine>& engines, bool json,
                  const std::function<void()>& print_result) {
  if (json) {
    std::cout << dump_json(output.manifest) << std::flush;
    return;
  }
  if (is_quiet()) return;
  print_result();
  print_folders(output.folders);
  print_engines_served(engines);
  std::cout.flush();  // before an error of check_engines_asked
}

void add_report_options(CLI::App& command, ReportFiles& files) {
  add_text(command, "--html,--report", files.page, "Also draw it all as a page, in this file");
  add_text(command, "--plots", files.plots,
           "Also write its drawings as SVG files, into this folder");
}

void draw_checkpoint(const ReportFiles& files, const report::CheckpointReport& report) {
  TerminalDiagnostics diagnostics;
  write_report_files(files, checkpoint_page(report), checkpoint_plots(report), diagnostics);
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
              "auto, float32, float16, bfloat16, fp8_e4m3, fp8_e5m2 or fp8_e4m3fnuz");
  add_model(command, "--scales", options.scales,
            "Scales to use instead of the checkpoint's: kv_cache_scales.json, a scales-only "
            "overlay, a checkpoint, a folder of rank files");
  command.add_flag("--unit-scales", options.unit_scales,
                   "Scale 1.0 in every layer, as engines use without scales");
}

}  // namespace kvcal
