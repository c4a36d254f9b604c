#include "output_formats.h"

#include <algorithm>
#include <iostream>

#include "calib/derive.h"
#include "core/registry.h"
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
  CLI::Option* output =
      command
          .add_option("--output", options.output, "Folder to write; appears complete or not at all")
          ->check(is_not_empty());
  command.add_option(
      "--format", options.formats,
      "compressed-tensors (default), fp8, modelopt, quark, tgi or scales-json; may be repeated");
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
  command
      .add_option("--tp-size", options.tp_size,
                  "Ranks of tensor parallelism: of kv_cache_scales.json, and over which heads' "
                  "scales are tied")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command.add_flag("--overwrite", options.overwrite, "Replace the output if it exists");
  return output;
}

OutputFormats::OutputFormats(OutputOptions options) : options_(std::move(options)) {
  const std::vector<std::string>& formats = options_.formats;
  for (auto format = formats.begin(); format != formats.end(); ++format) {
    writers_.push_back(kWriters.at(*format)());
    if (std::find(formats.begin(), format, *format) != format)
      fail("--format ", *format, " is given twice");
  }
}

ExportInput OutputFormats::input(const ModelDir& model, const Calibration& calibration,
                                 const Recipe& recipe) const {
  return {.model = model,
          .calibration = calibration,
          .recipe = recipe,
          .tp_size = options_.tp_size,
          .scale_in_model_dtype = options_.scale_dtype == "model"};
}

void OutputFormats::check(const ModelDir& model, const Calibration& calibration,
                          const Recipe& recipe) const {
  for (size_t i = 0; i < writers_.size(); ++i)
    in_context("--format " + options_.formats[i],
               [&] { writers_[i]->check(input(model, calibration, recipe)); });
}

WrittenCheckpoint OutputFormats::write(const ModelDir& model, const Calibration& calibration,
                                       const Recipe& recipe, const std::filesystem::path& folder,
                                       int threads, Diagnostics& progress) const {
  ExportInput all = input(model, calibration, recipe);
  ThreadPool pool(threads);
  all.pool = &pool;
  all.progress = &progress;
  WrittenCheckpoint written;
  for (size_t i = 0; i < writers_.size(); ++i) {
    const auto own = writers_.size() == 1 ? folder : folder / options_.formats[i];
    std::filesystem::create_directories(own);
    written.weights.merge(in_context("--format " + options_.formats[i], [&] {
                            return writers_[i]->write(all, own);
                          }).weights);
  }
  return written;
}

void OutputFormats::print_notes(const ModelDir& model, const Calibration& calibration,
                                const Recipe& recipe) const {
  for (const auto& writer : writers_)
    for (const std::string& note : writer->notes(input(model, calibration, recipe)))
      std::cerr << "note: " << note << '\n';
}

void OutputFormats::print_folders() const {
  for (const std::string& format : options_.formats)
    std::cout << "wrote " << format << ": "
              << (writers_.size() == 1 ? options_.output
                                       : (std::filesystem::path(options_.output) / format).string())
              << '\n';
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
