#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "calib/calibrator.h"
#include "commands.h"
#include "core/file.h"
#include "core/process_memory.h"
#include "core/registry.h"
#include "export/layer_scales.h"
#include "export/manifest.h"
#include "export/writer.h"
#include "kvcal_version.h"
#include "model/divided_forward.h"
#include "process_limit.h"
#include "progress.h"
#include "table.h"

namespace kvcal {
namespace {

struct CalibrateOptions {
  std::string model, recipe, dataset, output;
  std::vector<std::string> formats;
  SampleOptions samples;
  std::string kv_forward = "quantized";
  std::string scale_dtype = "float32";
  std::string memory_limit;
  DeviceOptions device;
  int64_t batch_tokens = 0;
  int64_t tp_size = 1;
  bool overwrite = false;
  bool reproducible = false;
  bool json = false;
};

/// Seconds of each stage, by name.
class StageClock {
 public:
  void end(const std::string& stage) {
    const auto now = std::chrono::steady_clock::now();
    seconds_[stage] = std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::map<std::string, double> seconds_;
};

KvForward parse_kv_forward(const std::string& name) {
  static const Registry<KvForward> kModes{
      "--kv-forward", {{"quantized", KvForward::kQuantized}, {"exact", KvForward::kExact}}};
  return kModes.at(name);
}

std::vector<Sample> read_all_samples(const CalibrateOptions& options, const Dataset& dataset,
                                     const ModelDir& model_dir, const ModelConfig& config,
                                     Diagnostics& diagnostics) {
  // Already tokenized data needs no tokenizer.
  const bool is_tokenized = std::holds_alternative<std::vector<TokenId>>(dataset.record(0).content);
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatFormat> chat;
  if (!is_tokenized) {
    tokenizer = make_tokenizer(model_dir.path());
    chat = ChatFormat::from_folder(model_dir.path());
  }
  return read_samples(dataset, tokenizer.get(), chat ? &*chat : nullptr, config.vocab_size,
                      options.samples, diagnostics);
}

std::vector<std::unique_ptr<Writer>> make_writers(std::vector<std::string>& formats) {
  if (formats.empty()) formats.emplace_back("compressed-tensors");
  std::vector<std::unique_ptr<Writer>> writers;
  for (size_t i = 0; i < formats.size(); ++i) {
    writers.push_back(kWriters.at(formats[i])());
    if (std::find(formats.begin(), formats.begin() + static_cast<std::ptrdiff_t>(i), formats[i]) !=
        formats.begin() + static_cast<std::ptrdiff_t>(i))
      fail("--format ", formats[i], " is given twice");
  }
  return writers;
}

ExportInput export_input(const CalibrateOptions& options, const ModelDir& model_dir,
                         const Calibration& calibration, const Recipe& recipe) {
  return {model_dir, calibration, recipe, options.tp_size, options.scale_dtype == "model"};
}

void check_formats(const CalibrateOptions& options,
                   const std::vector<std::unique_ptr<Writer>>& writers, const ModelDir& model_dir,
                   const Calibration& calibration, const Recipe& recipe) {
  for (size_t i = 0; i < writers.size(); ++i)
    in_context("--format " + options.formats[i],
               [&] { writers[i]->check(export_input(options, model_dir, calibration, recipe)); });
}

/// What will be calibrated, with scale 1.0 everywhere: a format that cannot hold it can hold none.
Calibration planned_calibration(const Recipe& recipe, const ModelConfig& config,
                                const std::vector<bool>& ignored) {
  const bool per_head =
      resolved_strategy(*recipe.modifiers.front().kv_cache_scheme) == Strategy::kAttnHead;
  const std::vector<Scale> scales(per_head ? static_cast<size_t>(config.cache_heads()) : size_t{1});
  const KvTensorCalibration side{.statistics = {}, .scales = scales, .num_saturated = 0};
  Calibration planned = empty_calibration(recipe, config);
  for (size_t i = 0; i < ignored.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    if (!config.has_attention(layer)) continue;
    planned.layers.push_back({.layer = layer,
                              .module = config.attention_module(layer),
                              .ignored = ignored[i],
                              .k = side,
                              .v = side});
  }
  return planned;
}

/// One format goes into the output itself, several into a folder each.
void write_formats(const std::vector<std::string>& formats,
                   const std::vector<std::unique_ptr<Writer>>& writers, const ExportInput& input,
                   const fs::path& output) {
  for (size_t i = 0; i < writers.size(); ++i) {
    const fs::path folder = writers.size() == 1 ? output : output / formats[i];
    fs::create_directories(folder);
    in_context("--format " + formats[i], [&] { writers[i]->write(input, folder); });
  }
}

void write_text(const fs::path& path, const std::string& text) {
  FileWriter writer(path);
  writer.write(text);
  writer.close();
}

void print_summary(const Calibration& calibration, const std::vector<std::string>& formats,
                   const std::string& output) {
  Table table({"layer", "k_scale", "v_scale", "k_amax", "v_amax", "k_clipped", "v_clipped"});
  const auto scale_text = [](const KvTensorCalibration& side, bool ignored) -> std::string {
    if (ignored) return "ignored";
    if (side.scales.size() == 1) return short_float(static_cast<double>(side.scales[0].value));
    return std::to_string(side.scales.size()) + " heads";
  };
  const auto clipped = [](const KvTensorCalibration& side) {
    return percent(static_cast<double>(side.num_saturated) /
                   static_cast<double>(side.statistics.num_values));
  };
  const auto amax = [](const KvTensorCalibration& side) {
    return short_float(static_cast<double>(side.statistics.range().amax().value));
  };
  for (const AttentionCalibration& layer : calibration.layers)
    table.add({std::to_string(layer.layer), scale_text(layer.k, layer.ignored),
               scale_text(layer.v, layer.ignored), amax(layer.k), amax(layer.v), clipped(layer.k),
               clipped(layer.v)});
  table.print(std::cout);
  for (const std::string& format : formats)
    std::cout << "wrote " << format << ": "
              << (formats.size() == 1 ? output : (fs::path(output) / format).string()) << '\n';
}

/// What a finished run tells its manifest.
struct CalibrationRun {
  const CalibrateOptions& options;
  const ModelDir& model_dir;
  const ModelConfig& config;
  const Dataset& dataset;
  const std::vector<Sample>& samples;
  const std::string& device;
  ComputeType compute_type;
  const Recipe& recipe;
  const Calibration& calibration;
  const StageClock& clock;
};

Json manifest_of(const CalibrationRun& run) {
  ManifestInput input{.version = KVCAL_VERSION,
                      .model_path = run.options.model,
                      .model_type = run.config.model_type,
                      .model_sha256 = run.model_dir.sha256(),
                      .recipe_path = run.options.recipe,
                      .dataset_path = run.options.dataset,
                      .dataset_sha256 = run.dataset.sha256(),
                      .sample_indices = {},
                      .num_tokens = 0,
                      .compute_dtype = std::string(name_of(run.compute_type)),
                      .kv_forward = run.options.kv_forward,
                      .leave_out_machine = run.options.reproducible,
                      .device = run.device,
                      .seconds = run.clock.seconds(),
                      .peak_rss_bytes = peak_resident_bytes()};
  for (const Sample& sample : run.samples) {
    input.sample_indices.push_back(sample.index);
    input.num_tokens += static_cast<int64_t>(sample.ids.size());
  }
  return make_manifest(input, run.recipe, run.calibration);
}

/// The devices' descriptions, equal ones once.
std::string description_of(const std::vector<std::unique_ptr<Backend>>& backends) {
  std::vector<std::string> all;
  for (const auto& backend : backends) all.push_back(backend->description());
  if (all.size() > 1 && std::ranges::count(all, all[0]) == std::ssize(all))
    return std::to_string(all.size()) + " x " + all[0];
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : ", ") + one;
  return text;
}

LayerwiseOptions layerwise_options(const CalibrateOptions& options, const Backend& backend,
                                   const ModelConfig& config, const fs::path& scratch) {
  LayerwiseOptions layerwise{.compute_type = compute_type_of(options.device, backend, config),
                             .batch_tokens = options.batch_tokens,
                             .scratch_folder = scratch};
  if (!options.memory_limit.empty())
    layerwise.memory_limit =
        in_context("--memory-limit", [&] { return parse_byte_size(options.memory_limit); });
  return layerwise;
}

/// The forward pass over all samples and the scales made of it.
Calibration measure(const CalibrateOptions& options, const ModelDir& model_dir,
                    const ModelConfig& config, const Recipe& recipe,
                    const std::vector<Sample>& samples,
                    const std::vector<std::unique_ptr<Backend>>& backends,
                    const LayerwiseOptions& layerwise, Diagnostics& diagnostics) {
  const Weights weights = in_context(options.model, [&] { return Weights(model_dir, config); });
  std::vector<std::span<const TokenId>> ids;
  for (const Sample& sample : samples) ids.emplace_back(sample.ids);
  std::vector<Backend*> devices;
  for (const auto& backend : backends) devices.push_back(backend.get());
  DividedForward forward(config, weights, devices, ids, layerwise, diagnostics);
  return calibrate(forward, config, recipe, samples, parse_kv_forward(options.kv_forward),
                   diagnostics);
}

void run_calibrate(CalibrateOptions options) {
  StageClock clock;
  TerminalDiagnostics diagnostics;
  const Recipe recipe = read_recipe(options.recipe);
  parse_kv_forward(options.kv_forward);
  const auto writers = make_writers(options.formats);
  const ModelDir model_dir(options.model);
  const ModelConfig config = read_config(model_dir);
  // Whatever can be refused is refused before the long work.
  const std::vector<bool> ignored =
      in_context(options.recipe, [&] { return ignored_layers(recipe, config); });
  if (config.weight_block_rows == 0) check_is_unquantized(model_dir);
  in_context(options.model, [&] { Weights(model_dir, config); });
  check_formats(options, writers, model_dir, planned_calibration(recipe, config, ignored), recipe);
  check_target(model_dir, options.output);
  AtomicDirectory output(options.output, options.overwrite);
  const auto backends = open_backends(options.device);
  const std::string device = description_of(backends);
  LayerwiseOptions layerwise =
      layerwise_options(options, *backends[0], config, output.target().parent_path());
  const auto dataset = open_dataset(options.dataset);
  const auto samples = read_all_samples(options, *dataset, model_dir, config, diagnostics);
  if (backends[0]->is_host()) set_process_memory(layerwise, config, options.device.threads);
  clock.end("load");

  const Calibration calibration =
      measure(options, model_dir, config, recipe, samples, backends, layerwise, diagnostics);
  clock.end("calibrate");

  check_formats(options, writers, model_dir, calibration, recipe);
  const ExportInput input = export_input(options, model_dir, calibration, recipe);
  write_formats(options.formats, writers, input, output.path());
  clock.end("write");
  const Json manifest = manifest_of({options, model_dir, config, *dataset, samples, device,
                                     layerwise.compute_type, recipe, calibration, clock});
  write_text(output.path() / kManifestName, dump_json(manifest));
  output.commit();
  for (const auto& writer : writers)
    for (const std::string& note : writer->notes(input)) std::cerr << "note: " << note << '\n';
  if (options.json) {
    std::cout << dump_json(manifest);
  } else {
    print_summary(calibration, options.formats, options.output);
  }
}

void add_output_options(CLI::App& command, CalibrateOptions& options) {
  command.add_option("--output", options.output, "Folder to write; appears complete or not at all")
      ->required()
      ->check(is_not_empty());
  command.add_option("--format", options.formats,
                     "compressed-tensors (default), tgi or scales-json; may be repeated");
  command
      .add_option("--scale-dtype", options.scale_dtype,
                  "Of the scales in the checkpoint: float32, or model")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "model"}));
  command.add_option("--tp-size", options.tp_size, "Ranks to write into kv_cache_scales.json")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command.add_flag("--overwrite", options.overwrite, "Replace the output if it exists");
  command.add_flag("--reproducible", options.reproducible,
                   "Leave device, seconds and peak memory out of the manifest");
  command.add_flag("--json", options.json, "Print the manifest instead of a table");
}

}  // namespace

void add_calibrate(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Measure K and V over a data set and write their FP8 scales");
  command->add_option("model", options->model, "Hugging Face model folder")
      ->required()
      ->check(is_not_empty());
  command->add_option("--recipe", options->recipe, "Recipe in llm-compressor's form")
      ->required()
      ->check(is_not_empty());
  command->add_option("--dataset", options->dataset, "JSONL, JSON, text or a descriptor")
      ->required()
      ->check(is_not_empty());
  add_output_options(*command, *options);
  command
      ->add_option("--num-calibration-samples", options->samples.num_calibration_samples,
                   "Samples to use")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command
      ->add_option("--max-seq-length", options->samples.max_seq_length, "Tokens a sample is cut at")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command
      ->add_option("--shuffle-seed", options->samples.shuffle_seed,
                   "Order of Hugging Face Dataset.shuffle(seed)")
      ->check(is_not_negative());
  command
      ->add_option("--kv-forward", options->kv_forward,
                   "What later layers see of K and V: quantized or exact")
      ->capture_default_str();
  add_device_options(*command, options->device);
  command
      ->add_option("--batch-tokens", options->batch_tokens,
                   "Tokens that go through a layer together; 0: as the device likes")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command->add_option(
      "--memory-limit", options->memory_limit,
      "Of the process, such as 8GiB; of a GPU, its memory. Hidden states past it go to "
      "a scratch file, of a GPU to pinned host memory");
  command->callback([options, &run] { run = [options] { run_calibrate(*options); }; });
}

}  // namespace kvcal
