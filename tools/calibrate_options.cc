#include "calibrate_options.h"

#include "calib/derive.h"
#include "calib/quant_plan.h"
#include "core/file.h"
#include "core/registry.h"
#include "eval/gates.h"
#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "output_files.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

KvForward parse_kv_forward(const std::string& name) {
  static const Registry<KvForward> kModes{
      "--kv-forward", {{"quantized", KvForward::kQuantized}, {"exact", KvForward::kExact}}};
  return kModes.at(name);
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
  for (const OutputFile& file : outputs)
    if (!file.path.empty())
      in_context(file.option, [&] { check_is_beside(file.path, options.output.output); });
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

void check_stop_rule(const CalibrateOptions& options) {
  if (options.stable_ratio.empty()) return;
  const int64_t window = stop_rule(options).window, most = options.samples.num_calibration_samples;
  if (most / 2 < window)
    fail("--stop-when-stable compares scales that are --stable-samples ", window,
         " apart, which takes twice as many samples; --num-calibration-samples is ", most);
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
  add_rank_options(command, options.ranks);
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

void check_all(const CalibrateOptions& options, const CalibrationSubject& subject,
               const OutputFormats& formats) {
  const CalibrationOptions calibration = calibration_options(options);
  check_stop_rule(options);
  check_state_options(options.state);
  wanted_weights(options.ranks);
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

void add_calibrate_options(CLI::App& command, CalibrateOptions& options) {
  command.add_option("model", options.model, "Hugging Face model folder")
      ->required()
      ->check(is_not_empty());
  command.add_option("--recipe", options.recipe, "Recipe in llm-compressor's form")
      ->required()
      ->check(is_not_empty());
  command
      .add_option("--dataset", options.dataset,
                  "JSONL, JSON, text or a descriptor; not needed where nothing is calibrated")
      ->check(is_not_empty());
  add_output_options(command, options.output)->required();
  add_report_options(command, options.report);
  command.add_flag("--reproducible", options.reproducible,
                   "Leave device, seconds and peak memory out of the manifest");
  command.add_flag("--json", options.json, "Print the manifest instead of a table");
  command
      .add_option("--num-calibration-samples", options.samples.num_calibration_samples,
                  "Samples to use")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command
      .add_option("--max-seq-length", options.samples.max_seq_length, "Tokens a sample is cut at")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command
      .add_option("--shuffle-seed", options.samples.shuffle_seed,
                  "Order of Hugging Face Dataset.shuffle(seed)")
      ->check(is_not_negative());
  add_forward_options(command, options);
}

}  // namespace kvcal
