#include "python_commands.h"

#include "hub/hub_cache.h"
#include "inspect/inspection.h"
#include "inspect/remote_checkpoint.h"
#include "inspect/verification.h"
#include "kvcal_version.h"
#include "ranks/rank_session.h"
#include "run/calibrate_checkpoint.h"
#include "run/convert_checkpoint.h"
#include "run/engines_served.h"
#include "run/measured_scales.h"
#include "run/named_inputs.h"
#include "run/remedies.h"
#include "run/scales_from_statistics.h"

namespace kvcal {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;

/// Where an output goes, and in which formats.
void read_target(Arguments& arguments, OutputOptions& output) {
  arguments.read("format", output.formats);
  arguments.read("engine", output.engines);
  arguments.read("output", output.output);
  arguments.read("tp_size", output.tp_size, 1, 1024);
  arguments.read("scales_only", output.scales_only);
  arguments.read("overwrite", output.overwrite);
}

void read_output(Arguments& arguments, OutputOptions& output) {
  read_target(arguments, output);
  arguments.read("kv_cache_dtype", output.kv_cache_dtype);
  arguments.read("scale_dtype", output.scale_dtype);
}

/// What Python gets of a written output. model: the source, for engines that are given scales
/// beside it.
Json output_json(const WrittenOutput& written, const ModelConfig& config, bool has_scales,
                 const std::string& model, const OutputOptions& options, Diagnostics& diagnostics) {
  Json folders = Json::array(), engines = Json::array();
  for (const WrittenFolder& folder : written.folders)
    folders.push_back({{"format", folder.format},
                       {"path", folder.path.string()},
                       {"is_overlay", folder.is_overlay}});
  const std::vector<ServedEngine> served =
      engines_served(written.folders, config, has_scales, model, options, diagnostics);
  for (const ServedEngine& engine : served)
    engines.push_back({{"name", engine.name},
                       {"title", engine.title},
                       {"fate", name_of(engine.fate)},
                       {"note", engine.note}});
  Json result{{"manifest", written.manifest}, {"folders", folders}, {"engines", engines}};
  try {
    check_engines_asked(served, options);
  } catch (const Error& error) {
    result["problem"] = error.message();
  }
  return result;
}

void read_calibration(Arguments& arguments, CalibrateRequest& request, Diagnostics& diagnostics) {
  read_model(arguments, "model", request.model, diagnostics);
  arguments.read("recipe", request.recipe);
  read_dataset(arguments, "dataset", request.dataset, diagnostics);
  read_records(arguments, request.records);
  arguments.read("dataset_name", request.dataset_name);
  read_output(arguments, request.output);
  arguments.read("num_samples", request.samples.num_calibration_samples, 1, kMany);
  arguments.read("max_seq_length", request.samples.max_seq_length, 1, int64_t{1} << 30);
  arguments.read("shuffle_seed", request.samples.shuffle_seed, 0, INT64_MAX);
  arguments.read("kv_forward", request.kv_forward);
  arguments.read("kv_cache_dtype_skip_layers", request.skip_layers);
  arguments.read("kl_budget", request.budget.kl, 0.0, 1e6);
  arguments.read("headroom", request.headroom, 1.0, kMostHeadroom);
  arguments.read("smooth", request.smooths);
  arguments.read("moe_all_experts", request.all_experts);
  arguments.read("no_mtp", request.no_mtp);
  arguments.read("save_statistics", request.save_statistics);
  arguments.read_text("stop_when_stable", request.stable_ratio);
  arguments.read("stable_samples", request.stable_samples, 1, kMany);
  arguments.read("state", request.state.folder);
  arguments.read("resume", request.state.resumes);
  arguments.read("reproducible", request.reproducible);
  read_device(arguments, request.device);
  arguments.read("inputs", request.device.inputs);
  arguments.read("batch_tokens", request.batch_tokens, 0, int64_t{1} << 30);
  arguments.read_text("memory_limit", request.memory_limit);
  request.version = KVCAL_VERSION;
  request.resume_command = "the same call with resume=True";
}

void read_conversion(Arguments& arguments, ConversionRequest& request) {
  arguments.read("strategy", request.strategy);
  arguments.read("fp8_dialect", request.dialect);
}

Json conversion_json(const ConversionResult& result, const ConversionRequest& request,
                     Diagnostics& diagnostics) {
  Json json = output_json(result.output, result.config, result.num_scaled_layers > 0,
                          request.checkpoint, request.output, diagnostics);
  Json losses = Json::array();
  for (const FormatLosses& format : result.losses)
    for (const LayerLoss& loss : format.layers)
      losses.push_back({{"format", format.format},
                        {"layer", loss.layer},
                        {"k_octaves", loss.k_octaves},
                        {"v_octaves", loss.v_octaves}});
  json["losses"] = losses;
  return json;
}

}  // namespace

void read_model(Arguments& arguments, const std::string& name, std::string& target,
                Diagnostics& diagnostics) {
  arguments.read(name, target);
  if (!target.empty()) target = local_model(target, diagnostics);
}

void read_dataset(Arguments& arguments, const std::string& name, std::string& target,
                  Diagnostics& diagnostics) {
  arguments.read(name, target);
  if (!target.empty())
    target = in_context(name, [&] { return local_dataset(target, diagnostics); });
}

FamilyArgument::FamilyArgument(Arguments& arguments, FamilyChoice& family) {
  std::string name, path;
  arguments.read("family", name);
  arguments.read("family_file", path);
  if (!name.empty() && !path.empty()) fail("family and family_file exclude each other");
  if (!name.empty()) family = in_context("family", [&] { return choose_family(name); });
  if (path.empty()) return;
  file_.emplace(std::filesystem::path(path));
  family = file_->choice();
}

void read_chat(Arguments& arguments, ChatOptions& chat) {
  arguments.read("chat_template", chat.template_file);
  chat.variables = arguments.read_json("chat_template_kwargs");
}

void read_records(Arguments& arguments, RecordOptions& records) {
  for (const auto& [name, column] : kRecordColumns)
    arguments.read(std::string(name), records.columns.*column);
  arguments.read("max_record_bytes", records.max_bytes, 1, INT64_MAX);
  read_chat(arguments, records.chat);
  std::string skip;
  arguments.read_text("skip_bad_records", skip);
  if (!skip.empty())
    records.skip = in_context("skip_bad_records", [&] { return parse_skip_limit(skip); });
}

void read_cache(Arguments& arguments, CacheOptions& cache, Diagnostics& diagnostics) {
  arguments.read("kv_cache_dtype", cache.kv_cache_dtype);
  read_model(arguments, "scales", cache.scales, diagnostics);
  arguments.read("unit_scales", cache.unit_scales);
  arguments.read("kv_cache_dtype_skip_layers", cache.skip_layers);
}

void read_device(Arguments& arguments, DeviceOptions& device) {
  arguments.read("device", device.device);
  arguments.read("compute_dtype", device.compute_dtype);
  arguments.read("threads", device.threads, 0, 4096);
}

Json python_calibrate(Arguments& arguments, Diagnostics& diagnostics) {
  CalibrateRequest request;
  MeasureOptions measure;
  bool measures = false;
  const FamilyArgument family(arguments, request.family);
  read_calibration(arguments, request, diagnostics);
  arguments.read("measure", measures);
  arguments.read("measure_sequences", measure.num_sequences, 1, kMany);
  arguments.expect_all_read();
  request.budget.num_sequences = measure.num_sequences;
  if ((measures || request.budget.kl) && !arguments.is_given("num_samples"))
    request.num_held_out = measure.num_sequences;
  request.is_measured = measures;
  if (request.output.output.empty()) fail("output: is missing, expected a folder to write");
  std::optional<CalibrationResult> result;
  // A process has one MPI, which is the caller's.
  RankSession session({.ignores_launcher = true});
  calibrate_checkpoint(request, session, diagnostics,
                       {.written = [&](const CalibrationResult& written) { result = written; }});
  session.done();
  Json json = output_json(result->output, result->config, !result->calibration.layers.empty(),
                          request.model, request.output, diagnostics);
  if (measures && !result->summary)
    diagnostics.warn("measure: the recipe calibrates no cache, so nothing is measured");
  if (!measures || !result->summary) return json;
  const MeasuredScales measured = measure_scales(request, *result, measure, diagnostics);
  keep_measured(request, name_of_source(request.model), measured, *result);
  json["manifest"] = result->output.manifest;
  json["measured"] = to_json(measured);
  return json;
}

Json python_scales(Arguments& arguments, Diagnostics& diagnostics) {
  ScalesRequest request;
  const FamilyArgument family(arguments, request.family);
  arguments.read("statistics", request.statistics);
  arguments.read("recipe", request.recipe);
  read_model(arguments, "model", request.model, diagnostics);
  read_output(arguments, request.output);
  arguments.read("headroom", request.headroom, 1.0, kMostHeadroom);
  arguments.expect_all_read();
  request.version = KVCAL_VERSION;
  const CalibrationResult result = scales_from_statistics(request, diagnostics);
  return output_json(result.output, result.config, !result.calibration.layers.empty(),
                     request.model, request.output, diagnostics);
}

Json python_convert(Arguments& arguments, Diagnostics& diagnostics) {
  ConversionRequest request;
  const FamilyArgument family(arguments, request.family);
  read_model(arguments, "checkpoint", request.checkpoint, diagnostics);
  read_target(arguments, request.output);
  read_model(arguments, "scales", request.scales, diagnostics);
  read_conversion(arguments, request);
  arguments.expect_all_read();
  if (request.output.formats.empty() && request.output.engines.empty())
    fail("needs a format (to) or an engine");
  request.version = KVCAL_VERSION;
  return conversion_json(convert_checkpoint(request, diagnostics), request, diagnostics);
}

Json python_apply(Arguments& arguments, Diagnostics& diagnostics) {
  ConversionRequest request;
  std::string overlay;
  const FamilyArgument family(arguments, request.family);
  arguments.read("overlay", overlay);
  read_model(arguments, "checkpoint", request.checkpoint, diagnostics);
  arguments.read("output", request.output.output);
  arguments.read("overwrite", request.output.overwrite);
  arguments.expect_all_read();
  request.version = KVCAL_VERSION;
  return conversion_json(apply_overlay(overlay, request.checkpoint, request, diagnostics), request,
                         diagnostics);
}

namespace {

CheckpointSource read_checkpoint(Arguments& arguments, bool offline_config,
                                 Diagnostics& diagnostics) {
  std::string given;
  arguments.read("checkpoint", given);
  return checkpoint_source(given, offline_config, diagnostics);
}

std::vector<VerifyReport> verified(const CheckpointSource& checkpoint,
                                   const std::vector<std::string>& engines,
                                   const VerifyOptions& options) {
  std::vector<VerifyReport> reports;
  in_name_of(checkpoint, [&] { reports = verify(checkpoint.path, engines, options); });
  return reports;
}

}  // namespace

Json python_inspect(Arguments& arguments, Diagnostics& diagnostics) {
  bool tensors = false;
  FamilyChoice choice;
  const FamilyArgument family(arguments, choice);
  const CheckpointSource checkpoint =
      read_checkpoint(arguments, /*offline_config=*/true, diagnostics);
  arguments.read("tensors", tensors);
  arguments.expect_all_read();
  Json json;
  in_name_of(checkpoint, [&] {
    const InspectionResult found = inspect(checkpoint.path, {}, choice);
    for (const std::string& warning : found.quantization.warnings)
      diagnostics.warn(checkpoint.name + ": " + checkpoint.named(warning));
    json = checkpoint.named(inspection_json(found, tensors));
  });
  return json;
}

Json python_verify(Arguments& arguments, Diagnostics& diagnostics) {
  std::string scales;
  std::vector<std::string> engines;
  VerifyOptions options;
  bool allow_16_bit = false;
  const FamilyArgument family(arguments, options.family);
  const CheckpointSource checkpoint =
      read_checkpoint(arguments, /*offline_config=*/false, diagnostics);
  arguments.read("engine", engines);
  arguments.read("kv_cache_dtype", options.kv_cache_dtype);
  arguments.read("kv_cache_dtype_skip_layers", options.skip_layers);
  arguments.read("rocm", options.is_rocm);
  arguments.read("tp_size", options.tp_size, 1, 1024);
  arguments.read("scales", scales);
  arguments.read("allow_16_bit", allow_16_bit);
  arguments.expect_all_read();
  options.scales = scales;
  const std::vector<VerifyReport> reports = verified(checkpoint, engines, options);
  Json result{{"reports", Json::array()}};
  for (const VerifyReport& report : reports)
    result["reports"].push_back(checkpoint.named(report_json(report)));
  const Verdict verdict = verdict_of(reports);
  result["holding"] = verdict.holding;
  result["unknown"] = verdict.unknown;
  const std::string problem = problem_of(verdict, options, allow_16_bit);
  if (!problem.empty()) result["problem"] = checkpoint.name + ": " + problem;
  return result;
}

}  // namespace kvcal
