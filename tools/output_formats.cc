#include "output_formats.h"

#include <algorithm>
#include <iostream>

#include "calib/derive.h"
#include "convert/kept_quantization.h"
#include "core/folder.h"
#include "core/registry.h"
#include "export/joined_writer.h"
#include "export/overlay.h"
#include "served_engines.h"
#include "table.h"

namespace kvcal {
namespace {

std::string scale_text(const KvTensorCalibration& side, bool ignored) {
  if (ignored) return "ignored";
  if (side.scales.size() == 1) return short_float(static_cast<double>(side.scales[0].value));
  return std::to_string(side.scales.size()) + " heads";
}

void print_attention(const Calibration& calibration) {
  const bool has_queries = std::ranges::any_of(
      calibration.layers, [](const AttentionCalibration& layer) { return layer.q.has_value(); });
  std::vector<std::string> head{"layer",  "k_scale",   "v_scale",  "k_amax",
                                "v_amax", "k_clipped", "v_clipped"};
  if (has_queries) head.insert(head.begin() + 1, "q_scale");
  Table table(head);
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
  table.print(std::cout);
}

}  // namespace

CLI::Option* add_output_options(CLI::App& command, OutputOptions& options) {
  command.add_option(
      "--format", options.formats,
      "compressed-tensors (default), fp8, modelopt, quark, tgi or scales-json; may be repeated, or "
      "joined by '+' for one folder");
  command
      .add_option("--kv-cache-dtype", options.kv_cache_dtype,
                  "FP8 type the scales are for: fp8_e4m3, fp8_e4m3fnuz or fp8_e5m2")
      ->capture_default_str();
  command
      .add_option("--scale-dtype", options.scale_dtype,
                  "Of the scales in the checkpoint: float32, or model, which rounds as "
                  "llm-compressor does")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "model"}));
  return add_target_options(command, options);
}

CLI::Option* add_target_options(CLI::App& command, OutputOptions& options) {
  CLI::Option* output =
      command
          .add_option("--output", options.output, "Folder to write; appears complete or not at all")
          ->check(is_not_empty());
  command
      .add_option("--tp-size", options.tp_size,
                  "Ranks of tensor parallelism: of kv_cache_scales.json, and over which heads' "
                  "scales are tied")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command.add_flag("--scales-only", options.scales_only,
                   "Write an overlay: scales, config.json and index without the weights, for kvcal "
                   "apply or to drop into a sharded checkpoint's folder");
  command.add_flag("--overwrite", options.overwrite, "Replace the output if it exists");
  return output;
}

OutputFormats::OutputFormats(OutputOptions options, std::string option)
    : options_(std::move(options)), option_(std::move(option)) {
  for (std::string& format : options_.formats) format = format_name(format);
  const std::vector<std::string>& formats = options_.formats;
  for (auto format = formats.begin(); format != formats.end(); ++format) {
    writers_.push_back(make_writer(*format));
    if (std::find(formats.begin(), format, *format) != format)
      fail(option_, " ", *format, " is given twice");
  }
}

ExportInput OutputFormats::completed(const ExportInput& input) const {
  ExportInput all = input;
  all.tp_size = options_.tp_size;
  all.scale_in_model_dtype = options_.scale_dtype == "model";
  const auto has_weights = [](const std::string& format) { return format != "scales-json"; };
  all.shares_weights = std::ranges::count_if(options_.formats, has_weights) > 1;
  return all;
}

fs::path OutputFormats::folder_of(const fs::path& output, size_t index) const {
  return writers_.size() == 1 ? output : output / options_.formats[index];
}

void OutputFormats::check(const ExportInput& input) const {
  for (size_t i = 0; i < writers_.size(); ++i)
    in_context(option_ + " " + options_.formats[i], [&] { writers_[i]->check(completed(input)); });
  if (options_.scales_only && input.calibration.plan.quantizes_weights())
    fail("--scales-only writes scales of K and V; FP8 weights make a whole checkpoint");
}

WrittenCheckpoint OutputFormats::write(const ExportInput& input, const fs::path& folder,
                                       int threads, Diagnostics& progress) const {
  ExportInput all = completed(input);
  ThreadPool pool(threads);
  all.pool = &pool;
  all.progress = &progress;
  WrittenCheckpoint first;
  for (size_t i = 0; i < writers_.size(); ++i) {
    const fs::path own = folder_of(folder, i);
    if (own != folder) fs::create_directory(own);  // folder itself is there, or has vanished
    in_context(option_ + " " + options_.formats[i], [&] {
      if (options_.scales_only)
        return write_overlay(all, writers_[i]->parts(all), options_.formats[i], own);
      WrittenCheckpoint written =
          writers_[i]->write(all, own, first.folder.empty() ? nullptr : &first);
      if (first.folder.empty() && !written.folder.empty()) first = std::move(written);
    });
  }
  return first;
}

void OutputFormats::print_notes(const ExportInput& input) const {
  std::vector<std::string> told;
  for (const auto& writer : writers_)
    for (const std::string& note : writer->notes(completed(input)))
      if (std::ranges::find(told, note) == told.end()) {
        std::cerr << "note: " << note << '\n';
        told.push_back(note);
      }
}

void OutputFormats::print_folders(const ModelConfig& config) const {
  for (size_t i = 0; i < writers_.size(); ++i) {
    const fs::path folder = folder_of(options_.output, i);
    const bool is_overlay = options_.scales_only && is_there(folder / kOverlayName);
    std::cout << "wrote " << options_.formats[i] << (is_overlay ? " (overlay)" : "") << ": "
              << folder.string() << '\n';
    if (joined_names(options_.formats[i]).size() > 1 && !is_overlay)
      print_served_engines(folder, config);
  }
}

std::optional<KeptQuantization> kept_weights(const ModelDir& model, const ModelConfig& config) {
  return config.weight_block_rows == 0 ? std::nullopt : read_kept_quantization(model);
}

KvDType parse_fp8_cache_dtype(const std::string& name) {
  const KvDType dtype = parse_kv_dtype(name);
  if (!is_fp8(dtype)) fail("--kv-cache-dtype ", name, " needs no scales, expected an FP8 type");
  return dtype;
}

Calibration planned_calibration(const QuantPlan& plan, const ModelConfig& config,
                                KvDType kv_dtype) {
  Calibration planned = empty_calibration(plan, config, kv_dtype);
  for (const PlannedAttention& attention : plan.attention) {
    const bool per_head = resolved_strategy(attention.kv) == Strategy::kAttnHead;
    const auto side = [&](int64_t heads) {
      return KvTensorCalibration{
          .statistics = {},
          .scales = std::vector<Scale>(per_head ? static_cast<size_t>(heads) : size_t{1})};
    };
    planned.layers.push_back({.layer = attention.layer,
                              .module = attention.module,
                              .ignored = attention.ignored,
                              .k = side(config.cache_heads()),
                              .v = side(config.cache_heads())});
    if (attention.q) planned.layers.back().q = side(config.num_attention_heads);
  }
  for (const PlannedLinear& linear : plan.linears) {
    const auto& inputs = plan.groups[linear.group].input_activations;
    if (inputs && !inputs->dynamic)
      planned.linears.push_back(
          {.module = linear.module, .input_amax = {}, .input_scale = {}, .input_tokens = 1});
  }
  return planned;
}

void print_calibration(const Calibration& calibration, const WrittenCheckpoint& written) {
  if (!calibration.layers.empty()) print_attention(calibration);
  if (!calibration.linears.empty()) {
    Table table({"module", "input_scale", "input_amax", "tokens"});
    for (const LinearCalibration& linear : calibration.linears)
      table.add({linear.module, short_float(static_cast<double>(linear.input_scale.value)),
                 short_float(static_cast<double>(linear.input_amax.value)),
                 std::to_string(linear.input_tokens)});
    table.print(std::cout);
  }
  if (!written.weights.empty())
    std::cout << written.weights.size() << " weights in FP8, "
              << calibration.plan.unquantized.size() << " left as they were\n";
}

}  // namespace kvcal
