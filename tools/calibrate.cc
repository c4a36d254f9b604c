#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "calib/quant_plan.h"
#include "calibrate_state.h"
#include "calibration_run.h"
#include "core/file.h"
#include "core/process_memory.h"
#include "core/registry.h"
#include "eval/gates.h"
#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/manifest.h"
#include "export/statistics_file.h"
#include "inspect_html.h"
#include "kvcal_version.h"
#include "model/weights.h"
#include "output_files.h"
#include "output_formats.h"
#include "progress.h"
#include "table.h"

namespace kvcal {
namespace {

struct CalibrateOptions {
  std::string model, recipe, dataset, save_statistics;
  OutputOptions output;
  SampleOptions samples;
  std::string kv_forward = "quantized";
  std::string memory_limit;
  DeviceOptions device;
  ReportOptions report;
  StateOptions state;
  int64_t batch_tokens = 0;
  std::string stable_ratio;  ///< empty: all samples are used
  int64_t stable_samples = 64;
  bool all_experts = false;
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

CalibrationOptions calibration_options(const CalibrateOptions& options) {
  return {.kv_forward = parse_kv_forward(options.kv_forward),
          .derive = {.kv_dtype = parse_fp8_cache_dtype(options.output.kv_cache_dtype),
                     // llm-compressor, whose arithmetic this is, has a scale for each.
                     .ties_latent = options.output.scale_dtype != "model",
                     .all_experts = options.all_experts},
          .observes_all = !options.save_statistics.empty()};
}

StopRule stop_rule(const CalibrateOptions& options) {
  return in_context("--stop-when-stable", [&] {
    const double ratio = parse_fraction(options.stable_ratio);
    if (ratio >= 1.0) fail("'", options.stable_ratio, "' is no limit, expected less than 100%");
    return StopRule{.ratio = ratio, .window = options.stable_samples};
  });
}

/// What a run borrows, and what the manifest says of it.
struct RunInputs {
  std::vector<std::unique_ptr<Backend>> backends;
  std::unique_ptr<Dataset> dataset;
  std::vector<Sample> samples;
  LayerwiseOptions layerwise;
  std::optional<StopOutcome> stop;

  CalibrationRun run(int threads) const {
    return {.backends = borrowed(backends),
            .samples = samples,
            .layerwise = layerwise,
            .threads = threads};
  }
};

RunInputs read_inputs(const CalibrateOptions& options, const CalibrationSubject& subject,
                      const fs::path& scratch, Diagnostics& diagnostics) {
  RunInputs inputs;
  inputs.backends = open_backends(options.device);
  inputs.layerwise = layerwise_options(options, *inputs.backends[0], subject.config, scratch);
  inputs.dataset = open_dataset(options.dataset);
  inputs.samples = samples_for(subject, *inputs.dataset, options.samples, diagnostics);
  return inputs;
}

/// Samples that the stop rule spared are taken out of the inputs.
Calibration calibrate_inputs(const CalibrateOptions& options, const CalibrationSubject& subject,
                             RunInputs& inputs, RunState* state, Statistics* kept,
                             Diagnostics& diagnostics) {
  CalibrationRun run = inputs.run(options.device.threads);
  run.state = state;
  const CalibrationOptions how = calibration_options(options);
  if (options.stable_ratio.empty() || !needs_data(subject.plan))
    return measure(subject, run, how, kept, diagnostics);
  StableCalibration stable =
      measure_until_stable(subject, run, how, stop_rule(options), kept, diagnostics);
  inputs.stop = stable.stop;
  inputs.samples.resize(static_cast<size_t>(stable.stop.num_samples));
  return std::move(stable.calibration);
}

void check_is_beside(const fs::path& path, const std::string& output) {
  if (lies_in(path, output))
    fail(path.string(), ": lies in the output, which appears whole; expected a file beside it");
}

/// What is written beside the checkpoint.
void check_other_targets(const CalibrateOptions& options) {
  const ReportOptions& report = options.report;
  if (report.is_asked_for() && options.output.scales_only)
    fail(
        "--report and --plots draw a checkpoint, --scales-only writes an overlay: draw what kvcal ",
        "apply makes of it with kvcal inspect");
  const std::vector<OutputFile> outputs{{"--save-statistics", options.save_statistics},
                                        {"--report", report.page},
                                        {"--plots", report.plots}};
  for (const auto& [option, path] : outputs)
    if (!path.empty()) in_context(option, [&] { check_is_beside(path, options.output.output); });
  check_output_files(outputs, options.output.overwrite,
                     {options.model, options.recipe, options.dataset});
  check_report_targets(report);
  const fs::path state = state_folder(options.state, options.output.output);
  if (options.state.folder.empty() || state.empty()) return;
  in_context("--state", [&] {
    check_is_beside(state, options.output.output);
    if (lies_in(state, options.model))
      fail(state.string(), ": lies in the model's folder, which is only read");
  });
}

/// What was asked for and has no effect.
void warn_of_idle_options(const CalibrateOptions& options, const CalibrationSubject& subject,
                          Diagnostics& diagnostics) {
  const bool runs = needs_data(subject.plan) || !options.save_statistics.empty();
  if (!runs && !options.dataset.empty())
    diagnostics.warn("--dataset is not read: " + options.recipe + " calibrates nothing");
  if (!needs_data(subject.plan) && !options.stable_ratio.empty())
    diagnostics.warn("--stop-when-stable has no effect: " + options.recipe + " calibrates nothing");
  const bool observes_inputs = has_static_inputs(subject.plan) || !options.save_statistics.empty();
  if (options.all_experts && !(observes_inputs && subject.config.architecture->has_experts()))
    diagnostics.warn("--moe-all-experts has no effect: no input of an expert is calibrated");
}

void check_stop_rule(const CalibrateOptions& options) {
  if (options.stable_ratio.empty()) return;
  const int64_t window = stop_rule(options).window, most = options.samples.num_calibration_samples;
  if (most / 2 < window)
    fail("--stop-when-stable compares scales that are --stable-samples ", window,
         " apart, which takes twice as many samples; --num-calibration-samples is ", most);
}

/// Whatever can be refused is refused before the long work.
void check_all(const CalibrateOptions& options, const CalibrationSubject& subject,
               const OutputFormats& formats) {
  const CalibrationOptions calibration = calibration_options(options);
  check_stop_rule(options);
  check_state_options(options.state);
  if (calibration.observes_all && calibration.kv_forward != KvForward::kExact)
    fail(
        "--save-statistics needs --kv-forward exact: with quantized, what later layers show "
        "depends on the recipe");
  if (options.dataset.empty() && calibration.observes_all)
    fail("--save-statistics needs text to run, give --dataset");
  if (options.dataset.empty() && needs_data(subject.plan))
    fail(options.recipe, ": needs text to calibrate with, give --dataset");
  if (!subject.kept) check_is_unquantized(subject.model_dir);
  in_context(options.model, [&] { Weights(subject.model_dir, subject.config); });
  formats.check(subject.output_of(
      planned_calibration(subject.plan, subject.config, calibration.derive.kv_dtype)));
  check_target(subject.model_dir, options.output.output);
  check_other_targets(options);
}

ManifestInput manifest_input(const CalibrateOptions& options, const CalibrationSubject& subject,
                             const RunInputs* run, const StageClock& clock) {
  ManifestInput input;
  input.version = KVCAL_VERSION;
  input.model_path = options.model;
  input.model_type = subject.config.model_type;
  input.model_sha256 = subject.model_dir.sha256();
  input.recipe_path = options.recipe;
  input.leave_out_machine = options.reproducible;
  input.seconds = clock.seconds();
  input.peak_rss_bytes = peak_resident_bytes();
  if (!run) return input;
  input.dataset_path = options.dataset;
  input.dataset_sha256 = run->dataset->sha256();
  input.compute_dtype = name_of(run->layerwise.compute_type);
  input.kv_forward = options.kv_forward;
  input.device = description_of(run->backends);
  input.stop = run->stop;
  for (const Sample& sample : run->samples) {
    input.sample_indices.push_back(sample.index);
    input.num_tokens += static_cast<int64_t>(sample.ids.size());
  }
  return input;
}

void save_statistics(const CalibrateOptions& options, const CalibrationSubject& subject,
                     const ManifestInput& manifest, Statistics& statistics) {
  if (options.save_statistics.empty()) return;
  statistics.origin = {.config = dump_json(subject.model_dir.config()),
                       .model_path = manifest.model_path,
                       .model_sha256 = manifest.model_sha256,
                       .dataset_path = manifest.dataset_path,
                       .dataset_sha256 = manifest.dataset_sha256,
                       .sample_indices = manifest.sample_indices,
                       .num_tokens = manifest.num_tokens,
                       .compute_dtype = manifest.compute_dtype,
                       .kv_forward = manifest.kv_forward,
                       .all_experts = options.all_experts};
  write_statistics(options.save_statistics, statistics, options.output.overwrite);
}

/// An unstable end is a warning.
void print_stop(const StopOutcome& stop) {
  if (!stop.is_stable) return;
  const ScaleMove& move = *stop.largest_move;
  std::cout << "stable after " << stop.num_samples << " of at most " << stop.max_samples
            << " samples: in the last " << move.num_samples << " no scale moved by more than "
            << percent(*move.ratio) << '\n';
}

/// Options that change what a run gives, for the fingerprint of its state.
Json deciding_options(const CalibrateOptions& options) {
  Json deciding = {{"--kv-forward", options.kv_forward},
                   {"--kv-cache-dtype", options.output.kv_cache_dtype},
                   {"--scale-dtype", options.output.scale_dtype},
                   {"--moe-all-experts", options.all_experts},
                   {"--save-statistics", !options.save_statistics.empty()},
                   {"--stop-when-stable", options.stable_ratio}};
  if (!options.stable_ratio.empty()) deciding["--stable-samples"] = options.stable_samples;
  return deciding;
}

std::unique_ptr<RunState> open_state(const CalibrateOptions& options,
                                     const CalibrationSubject& subject, const RunInputs& inputs,
                                     StatePeers& peers, Diagnostics& diagnostics) {
  return open_state(options.state, options.output.output, options.output.overwrite,
                    {.subject = subject,
                     .run = inputs.run(options.device.threads),
                     .options = deciding_options(options)},
                    peers, diagnostics);
}

/// What is written when a calibration is done: the output, whole, and what lies beside it.
class Result {
 public:
  Result(const CalibrateOptions& options, const CalibrationSubject& subject,
         const OutputFormats& formats)
      : options_(options),
        subject_(subject),
        formats_(formats),
        output_(options.output.output, options.output.overwrite) {}

  fs::path scratch_folder() const { return output_.target().parent_path(); }
  /// inputs: null where nothing was calibrated.
  void write(const Calibration& calibration, Statistics& statistics, const RunInputs* inputs,
             StageClock& clock, Diagnostics& diagnostics) {
    const WrittenCheckpoint written = formats_.write(
        subject_.output_of(calibration), output_.path(), options_.device.threads, diagnostics);
    clock.end("write");
    const ManifestInput input = manifest_input(options_, subject_, inputs, clock);
    const Json manifest = make_manifest(input, subject_.recipe, calibration, written);
    write_text_file(output_.path() / kManifestName, dump_json(manifest));
    save_statistics(options_, subject_, input, statistics);
    output_.commit();
    write_checkpoint_report(options_.output.output, options_.model, options_.report);
    if (options_.json) {
      std::cout << dump_json(manifest);
      return;
    }
    print_calibration(calibration, written);
    if (inputs && inputs->stop) print_stop(*inputs->stop);
    formats_.print_folders(subject_.config);
  }

 private:
  const CalibrateOptions& options_;
  const CalibrationSubject& subject_;
  const OutputFormats& formats_;
  AtomicDirectory output_;
};

/// With text: forward passes, whose state is kept until all is written.
void calibrate_and_write(const CalibrateOptions& options, const CalibrationSubject& subject,
                         const OutputFormats& formats, Result& result, StageClock& clock,
                         Diagnostics& diagnostics) {
  RunInputs inputs = read_inputs(options, subject, result.scratch_folder(), diagnostics);
  clock.end("load");
  StatePeers alone;
  const std::unique_ptr<RunState> state = open_state(options, subject, inputs, alone, diagnostics);
  with_state(state.get(), [&] {
    Statistics statistics;
    const Calibration calibration =
        calibrate_inputs(options, subject, inputs, state.get(),
                         options.save_statistics.empty() ? nullptr : &statistics, diagnostics);
    if (state) state->finish();
    clock.end("calibrate");
    formats.check(subject.output_of(calibration));
    result.write(calibration, statistics, &inputs, clock, diagnostics);
    if (state) state->remove();
  });
}

void run_calibrate(CalibrateOptions options) {
  StageClock clock;
  TerminalDiagnostics diagnostics;
  if (options.output.formats.empty()) options.output.formats.emplace_back("compressed-tensors");
  options.report.overwrite = options.output.overwrite;
  const OutputFormats formats(options.output);
  const CalibrationSubject subject =
      make_subject(read_recipe(options.recipe), options.recipe, options.model, diagnostics);
  check_all(options, subject, formats);
  warn_of_idle_options(options, subject, diagnostics);
  Result result(options, subject, formats);
  const KvDType kv_dtype = parse_fp8_cache_dtype(options.output.kv_cache_dtype);
  // What an engine refuses is known from the plan, and said before the long work.
  formats.print_notes(
      subject.output_of(planned_calibration(subject.plan, subject.config, kv_dtype)));
  if (needs_data(subject.plan) || !options.save_statistics.empty())
    return calibrate_and_write(options, subject, formats, result, clock, diagnostics);
  Statistics none;
  result.write(empty_calibration(subject.plan, subject.config, kv_dtype), none, nullptr, clock,
               diagnostics);
}

void add_forward_options(CLI::App& command, CalibrateOptions& options) {
  command
      .add_option("--kv-forward", options.kv_forward,
                  "What later layers see of K and V: quantized or exact")
      ->capture_default_str();
  command.add_flag("--moe-all-experts", options.all_experts,
                   "Show every expert all tokens when inputs are calibrated");
  command
      .add_option("--save-statistics", options.save_statistics,
                  "File to keep everything seen in, for kvcal scales; needs --kv-forward exact")
      ->check(is_not_empty());
  CLI::Option* stop = command.add_option(
      "--stop-when-stable", options.stable_ratio,
      "End when no scale has moved by more than this part of itself, such as 0.01 or 1%, in the "
      "last --stable-samples; --num-calibration-samples is the most");
  stop->check(is_not_empty());
  command
      .add_option("--stable-samples", options.stable_samples,
                  "Samples over which scales must stay, and between two looks at them")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->needs(stop);
  add_state_options(command, options.state);
  add_device_options(command, options.device);
  command
      .add_option("--batch-tokens", options.batch_tokens,
                  "Tokens that go through a layer together; 0: as the device likes")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command.add_option(
      "--memory-limit", options.memory_limit,
      "Of the process, such as 8GiB; of a GPU, its memory. Hidden states past it go to "
      "a scratch file, of a GPU to pinned host memory");
}

}  // namespace

void add_calibrate(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "Quantize as a recipe says: FP8 scales of K and V, weights and activations");
  command->add_option("model", options->model, "Hugging Face model folder")
      ->required()
      ->check(is_not_empty());
  command->add_option("--recipe", options->recipe, "Recipe in llm-compressor's form")
      ->required()
      ->check(is_not_empty());
  command
      ->add_option("--dataset", options->dataset,
                   "JSONL, JSON, text or a descriptor; not needed where nothing is calibrated")
      ->check(is_not_empty());
  add_output_options(*command, options->output)->required();
  add_report_options(*command, options->report);
  command->add_flag("--reproducible", options->reproducible,
                    "Leave device, seconds and peak memory out of the manifest");
  command->add_flag("--json", options->json, "Print the manifest instead of a table");
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
  add_forward_options(*command, *options);
  command->callback([options, &run] { run = [options] { run_calibrate(*options); }; });
}

}  // namespace kvcal
