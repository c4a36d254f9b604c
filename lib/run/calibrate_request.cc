#include "run/calibrate_request.h"

#include <algorithm>

#include "calib/plan/resolve_plan.h"
#include "calib/scales/derive.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/registry.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "datasets/named_dataset.h"
#include "export/writer.h"
#include "quant/cache_type.h"
#include "rewrite/rewritten_checkpoint.h"
#include "rewrite/smoothing.h"
#include "run/kl_budget.h"
#include "stored/kv_scales.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

KvForward parse_kv_forward(const std::string& name) {
  static const Registry<KvForward> kModes{
      "--kv-forward", {{"quantized", KvForward::kQuantized}, {"exact", KvForward::kExact}}};
  return kModes.at(name);
}

/// Checks all that the run writes, against each other and against what it reads.
void check_targets(const CalibrateRequest& request, const PlannedModel& subject) {
  const std::string& output = request.output.output;
  const std::vector<std::string> inputs{request.model, request.recipe, request.dataset,
                                        request.family.file(), request.records.chat.template_file};
  if (!output.empty()) {
    check_target(subject.model_dir, output);
    in_context("--output", [&] { check_keeps_inputs(output, inputs); });
  }
  const std::string state = state_folder(request.state, output).string();
  const std::vector<OutputFile> outputs{{"--save-statistics", request.save_statistics},
                                        {"--html", request.report.page},
                                        {"--plots", request.report.plots, OutputKind::kFolder}};
  std::vector<OutputFile> all{{"--output", output}};
  all.insert(all.end(), outputs.begin(), outputs.end());
  const bool has_state = !state.empty() && !(request.state.folder.empty() && output.empty());
  if (has_state) all.push_back({"--state", state});
  check_are_apart(all);
  check_output_files(outputs, request.output.overwrite, inputs);
  // A page shows a checkpoint, and an overlay is none.
  if (request.report.is_asked_for() && request.output.scales_only)
    fail_usage(
        "--html and --plots draw a checkpoint, --scales-only writes an overlay: draw what kvcal ",
        "apply makes of it with kvcal inspect");
  check_report_files(request.report);
  if (has_state) in_context("--state", [&] { check_keeps_inputs(state, inputs); });
}

/// A rewritten model is another one, whose weights the output has to hold.
void check_smooths(const CalibrateRequest& request, const PlannedModel& subject,
                   const OutputFormats& formats) {
  if (!request.smooths) return;
  const KvDType dtype = parse_fp8_cache_dtype(request.output.kv_cache_dtype);
  const bool is_for_int8 = request.output.kv_cache_dtype == name_of(CacheFormat::kInt8);
  if (dtype != KvDType::kFp8E4m3 || is_for_int8 || formats.is_for_nvfp4())
    fail_usage("--smooth rewrites K for a cache of fp8_e4m3, and --kv-cache-dtype is ",
               request.output.kv_cache_dtype);
  const auto& names = formats.names();
  if (request.output.scales_only || formats.is_file() ||
      !std::ranges::all_of(names, [](const std::string& format) {
        return any_has(format, &OutputFormat::is_checkpoint);
      }))
    fail_usage(
        "--smooth rewrites weights, which the output has to hold: expected a format of whole ",
        "checkpoints, without --scales-only");
  if (!request.save_statistics.empty())
    fail_usage(
        "--smooth and --save-statistics exclude each other: statistics are of a model that stays; ",
        "kvcal smooth ", request.model, " --for fp8_e4m3 makes it");
  check_can_be_rewritten(subject.model_dir);
  in_context(request.model, [&] { check_can_be_aligned(subject.config); });
}

void check_stop_rule(const CalibrateRequest& request) {
  if (request.stable_ratio.empty()) return;
  const int64_t window = stop_rule(request).window, most = request.samples.num_calibration_samples;
  if (most / 2 < window)
    fail_usage("--stop-when-stable compares scales that are --stable-samples ", window,
               " apart, which takes twice as many samples; --num-samples is ", most);
}

/// Chooses the default data set where text runs and none is named, holds records out, and notes
/// both.
void settle_dataset(CalibrateRequest& request, const PlannedModel& subject,
                    Diagnostics& diagnostics) {
  const bool is_default = request.dataset.empty();
  if (!runs_text(request, subject) || !(is_default || request.num_held_out > 0)) return;
  if (is_default) {
    if (!to_json(request.records.columns).empty())
      fail_usage("columns are named, expected a --dataset that has them");
    request.dataset = kDefaultDataset;
  }
  const int64_t records = open_dataset(request.dataset, {.records = request.records})->size();
  const int64_t held_out = std::min(request.num_held_out, (records + 1) / 2);
  int64_t& samples = request.samples.num_calibration_samples;
  const bool leaves = held_out > 0 && records > 1 && samples > records - held_out;
  samples = std::min(samples, std::max<int64_t>(records - held_out, 1));
  const std::string how =
      counted(samples, "sample") + (leaves ? ", leaving " + std::to_string(records - samples) +
                                                 " of the data set's records to measure on"
                                           : "");
  if (is_default)
    diagnostics.note("no --dataset is given: calibrating with the program's own '" +
                     request.dataset + "', " + how);
  else if (leaves)
    diagnostics.note("calibrating with " + how);
}

/// Throws Error where a tensor that is run is not read; lm_head is, where it is quantized or
/// measured.
void check_weights(const CalibrateRequest& request, const PlannedModel& subject) {
  const Weights weights(subject.model_dir, subject.config, &subject.quantization);
  const auto is_quantized = [&](const ModuleName& module) {
    return module.role == Role::kLmHead &&
           std::ranges::find(subject.plan.linears, module.name, &PlannedLinear::module) !=
               subject.plan.linears.end();
  };
  if (request.is_measured || request.kl_budget ||
      std::ranges::any_of(list_modules(subject.config), is_quantized))
    weights.check_head();
}

/// Reports every error that can be found before the long work.
void check_request(const CalibrateRequest& request, const PlannedModel& subject,
                   const OutputFormats& formats) {
  const CalibrationOptions calibration = calibration_options(request, {});
  check_stop_rule(request);
  check_smooths(request, subject, formats);
  check_state_options(request.state);
  wanted_weights(request.ranks);
  if (calibration.observes_all && calibration.kv_forward != KvForward::kExact)
    fail_usage(
        "--save-statistics needs --kv-forward exact: with quantized, what later layers show "
        "depends on the recipe");
  in_context(request.recipe, [&] { check_headroom(subject.plan, request.headroom); });
  subject.check_source();
  in_context(request.model, [&] { check_weights(request, subject); });
  Calibration planned =
      planned_calibration(subject.plan, subject.config, calibration.derive.kv_dtype);
  formats.check(subject.output_of(planned));
  check_budget(request, planned);
  if (request.kl_budget) {
    planned.layers.front().ignored = true;
    in_context("--kl-budget", [&] { formats.check(subject.output_of(planned)); });
  }
  check_targets(request, subject);
  if (request.report.is_asked_for() && formats.is_file())
    fail_usage("--html and --plots draw a folder, and ", request.output.output,
               " is a file of scales");
}

}  // namespace

CalibrationOptions calibration_options(const CalibrateRequest& request,
                                       std::span<const int64_t> lengths) {
  return {.kv_forward = parse_kv_forward(request.kv_forward),
          .derive = {.kv_dtype = parse_fp8_cache_dtype(request.output.kv_cache_dtype),
                     // llm-compressor, whose arithmetic this is, has a scale for each of K and V.
                     .ties_latent = request.output.scale_dtype != "model",
                     .all_experts = request.all_experts,
                     .headroom = request.headroom},
          .observes_all = !request.save_statistics.empty(),
          .compared_samples = compared_samples(lengths)};
}

DeviceOptions timed_devices(const CalibrateRequest& request, DeviceOptions devices) {
  devices.times_products = !request.reproducible && request.memory_limit.empty();
  devices.times_parts = request.times_parts;
  return devices;
}

StopRule stop_rule(const CalibrateRequest& request) {
  return in_context("--stop-when-stable", [&] {
    const double ratio = parse_fraction(request.stable_ratio);
    if (ratio >= 1.0)
      fail_usage("'", request.stable_ratio, "' is no limit, expected less than 100%");
    return StopRule{.ratio = ratio, .window = request.stable_samples};
  });
}

Json deciding_options(const CalibrateRequest& request) {
  Json deciding = {
      {"--kv-forward", request.kv_forward},
      {"--kv-cache-dtype", name_of(parse_fp8_cache_dtype(request.output.kv_cache_dtype))},
      {"--scale-dtype", request.output.scale_dtype},
      {"--moe-all-experts", request.all_experts},
      {"--inputs", request.device.inputs},
      {"--no-mtp", request.no_mtp},
      {"--save-statistics", !request.save_statistics.empty()},
      {"--stop-when-stable", request.stable_ratio}};
  if (!request.skip_layers.empty()) deciding["--kv-cache-dtype-skip-layers"] = request.skip_layers;
  if (request.source) deciding["--smooth"] = request.source->sha256;
  if (!request.stable_ratio.empty()) deciding["--stable-samples"] = request.stable_samples;
  if (request.headroom != 1.0) deciding["--headroom"] = request.headroom;
  if (const Json columns = to_json(request.records.columns); !columns.empty())
    deciding["columns of --dataset"] = columns;
  const ChatOptions& chat = request.records.chat;
  if (!chat.template_file.empty())
    deciding["--chat-template"] =
        sha256_hex(read_text(chat.template_file, kSmallFileLimits.max_bytes));
  if (!chat.variables.is_null()) deciding["--chat-template-kwargs"] = chat.variables;
  if (const SkipLimit& skip = request.records.skip; skip.records > 0 || skip.part > 0)
    deciding["--skip-bad-records"] = {skip.records, skip.part};
  if (request.family) deciding["--family"] = request.family.value;
  if (request.family.is_from_file()) deciding["--family-file"] = request.family.file_sha256;
  return deciding;
}

std::string calibrate_line(const CalibrateRequest& request, const std::string& model) {
  std::string line = "kvcal calibrate " + shell_word(model);
  if (request.recipe != kDefaultRecipe) line += " --recipe " + shell_word(request.recipe);
  if (!request.dataset.empty()) line += " --dataset " + shell_word(request.dataset);
  for (const auto& [name, column] : kRecordColumns)
    if (const std::string& given = request.records.columns.*column; !given.empty())
      line += " --" + replaced(std::string(name), "_", "-") + " " + shell_word(given);
  if (request.records.max_bytes != kDefaultRecordBytes)
    line += " --max-record-bytes " + std::to_string(request.records.max_bytes);
  const ChatOptions& chat = request.records.chat;
  if (!chat.template_file.empty()) line += " --chat-template " + shell_word(chat.template_file);
  if (!chat.variables.is_null())
    line += " --chat-template-kwargs " + shell_word(chat.variables.dump());
  if (const SkipLimit& skip = request.records.skip; skip.part > 0)
    line += " --skip-bad-records " + short_float(100 * skip.part) + "%";
  else if (skip.records > 0)
    line += " --skip-bad-records " + std::to_string(skip.records);
  if (!request.skip_layers.empty())
    line += " --kv-cache-dtype-skip-layers " +
            join(request.skip_layers, ",", [](int64_t layer) { return std::to_string(layer); });
  if (request.headroom != 1.0) line += " --headroom " + short_float(request.headroom);
  if (request.smooths) line += " --smooth";
  return line;
}

bool runs_text(const CalibrateRequest& request, const PlannedModel& subject) {
  return needs_data(subject.plan) || !request.save_statistics.empty();
}

void warn_of_idle_options(const CalibrateRequest& request, const PlannedModel& subject,
                          Diagnostics& diagnostics) {
  if (!runs_text(request, subject) && !request.dataset.empty())
    diagnostics.warn("--dataset is not read: " + request.recipe + " calibrates nothing");
  if (!needs_data(subject.plan) && !request.stable_ratio.empty())
    diagnostics.warn("--stop-when-stable has no effect: " + request.recipe + " calibrates nothing");
  const bool observes_inputs = has_static_inputs(subject.plan) || !request.save_statistics.empty();
  if (request.all_experts && !(observes_inputs && subject.config.architecture->has_experts()))
    diagnostics.warn("--moe-all-experts has no effect: no input of an expert is calibrated");
  const auto made = smoothed_for({{"smoothing", smoothing_of_folder(subject.model_dir.path())}});
  if (made && may_be_ruined(*made, parse_cache_type(request.output.kv_cache_dtype)))
    diagnostics.warn(request.model + ": its K was rewritten for " + std::string(name_of(*made)) +
                     ", and a cache of " + request.output.kv_cache_dtype +
                     " may lose far more than that of the model it was made of");
}

void plan_run(CalibrateRequest& request, PlannedRun& plan, Diagnostics& diagnostics) {
  const OutputOptions& output = request.output;
  if (!output.formats.empty()) plan.formats.emplace(output);  // wrong names are told first
  plan.subject.emplace(make_subject(read_recipe(request.recipe), request.recipe, request.model,
                                    diagnostics, request.family, !request.no_mtp));
  PlannedModel& subject = *plan.subject;
  settle_cache_dtype(request.output.kv_cache_dtype, subject.plan);
  if (!request.skip_layers.empty())
    in_context("--kv-cache-dtype-skip-layers", [&] { subject.leave_out(request.skip_layers); });
  settle_dataset(request, subject, diagnostics);
  plan.inputs = settle_inputs(request.device, subject.quantization);
  for (const std::string& warning : subject.quantization.warnings)
    diagnostics.warn(request.model + ": " + warning);
  plan.formats.emplace(subject.settle_output(output, diagnostics));
  if (output.scales_only && subject.output && subject.output->recoded.has_coded())
    diagnostics.note(
        "the overlay is of weights in another form than the checkpoint's: kvcal apply "
        "gives them that form, and copied into the folder it would not fit");
  check_request(request, subject, *plan.formats);
}

LayerwiseOptions layerwise_options(const CalibrateRequest& request, const Backend& backend,
                                   const ModelConfig& config, const fs::path& scratch) {
  LayerwiseOptions layerwise{.compute_type = compute_type_of(request.device, backend, config),
                             .batch_tokens = request.batch_tokens,
                             .scratch_folder = scratch};
  if (!request.memory_limit.empty())
    layerwise.memory_limit =
        in_context("--memory-limit", [&] { return parse_byte_size(request.memory_limit); });
  return layerwise;
}

}  // namespace kvcal
