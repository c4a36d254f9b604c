#include "run/scales_from_statistics.h"

#include <algorithm>

#include "calib/derive.h"
#include "calib/observed_statistics.h"
#include "calib/resolve_plan.h"
#include "convert/kept_quantization.h"
#include "convert/output_model.h"
#include "core/file.h"
#include "export/checkpoint_copy.h"
#include "export/manifest.h"
#include "export/statistics_file.h"
#include "family/draft_layer.h"
#include "run/closing_lines.h"
#include "run/named_inputs.h"
#include "run/output_files.h"
#include "stored/unrun_modules.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// Config of the statistics' own model, or of one that must equal it.
ModelConfig config_of(const ScalesRequest& request, const Statistics& statistics,
                      const std::optional<ModelDir>& model) {
  if (!model)
    return in_context(request.statistics, [&] {
      return in_context("config", [&] {
        return parse_model_config(parse_json(statistics.origin.model_config), request.family);
      });
    });
  if (model->sha256() != statistics.origin.model_sha256) {
    const std::vector<AbsentTensor>& absent = model->absent();
    fail(request.model, ": is not the model of ", request.statistics, ", which was made with '",
         statistics.origin.model_path, "' (sha256 ", statistics.origin.model_sha256, ")",
         absent.empty() ? "" : "; " + absent.front().problem);
  }
  return read_model_config(*model, request.family);
}

/// Another family may read the same tensors as other layers and heads.
void check_family(const ScalesRequest& request, const Provenance& seen, const ModelConfig& config) {
  Provenance own;
  set_model_type(config, own);
  const auto text = [](const Provenance& origin) {
    if (origin.family.empty()) return std::string("that of its model_type");
    return origin.family +
           (origin.family_sha256.empty() ? "" : " of a file with sha256 " + origin.family_sha256);
  };
  if (own.family != seen.family || own.family_sha256 != seen.family_sha256)
    fail(request.statistics, ": the family that ran is ", text(seen), ", the one given here is ",
         text(own));
}

/// Adds the draft layer that the statistics' run had.
void add_seen_draft(const Statistics& statistics, ModelConfig& config) {
  if (config.architecture->draft == DraftLayer::kNone) return;
  ModelConfig with_draft = config;
  append_draft_layer(with_draft);
  const std::string module = with_draft.attention_module(config.num_hidden_layers);
  if (std::ranges::find(statistics.attention, module, &AttentionStatistics::module) !=
      statistics.attention.end())
    config = std::move(with_draft);
}

/// model: nullptr where nothing is written.
Json manifest_of(const ScalesRequest& request, const ModelDir* model, const Statistics& statistics,
                 const Recipe& recipe, const CalibrationResult& result,
                 const WrittenCheckpoint& written) {
  ManifestInput input;
  input.version = request.version;
  // As in a run, which reads no data where nothing needs calibration.
  if (needs_data(result.calibration.plan)) input.origin = statistics.origin;
  input.origin.model_path = model ? name_of_model(*model) : statistics.origin.model_path;
  set_model_type(result.config, input.origin);
  input.origin.model_sha256 = statistics.origin.model_sha256;
  input.recipe_path = request.recipe;
  input.leave_out_machine = true;
  if (result.summary) input.summary = to_json(*result.summary);
  return make_manifest(input, recipe, result.calibration, written);
}

/// Checks that model, output and format are given together.
void check_output(const ScalesRequest& request) {
  if (request.output.output.empty() != request.model.empty())
    fail(request.model.empty() ? "--output needs the model it is written for, give --model"
                               : "--model is for what is written, give --output");
  if (!request.model.empty()) return;
  if (!request.output.formats.empty() || !request.output.engines.empty())
    fail(request.output.formats.empty() ? "--for" : "--format",
         " is for what is written, give --model and --output");
}

/// Writes the output of a calibration of the model.
void write(ScalesRequest& request, const ModelDir& model, const Statistics& statistics,
           const Recipe& recipe, CalibrationResult& result, Diagnostics& diagnostics) {
  const auto kept = read_kept_quantization(model);
  const CheckpointQuantization weights = read_checkpoint_quantization(model, result.config);
  for (const std::string& warning : weights.warnings)
    diagnostics.warn(request.model + ": " + warning);
  check_described(model, result.config, weights);
  settle_formats(request.output, model,
                 {.kept = kept ? &*kept : nullptr,
                  .weights = &weights,
                  .makes_weights = result.calibration.plan.quantizes_weights()},
                 diagnostics);
  const OutputFormats formats(request.output);
  const auto other = output_model(model, result.config, formats.names(), diagnostics);
  const auto& written = other ? other->kept : kept;
  const ExportInput input{.model = other ? other->model : model,
                          .calibration = result.calibration,
                          .recipe = &recipe,
                          .kept = written ? &*written : nullptr};
  formats.check(input);
  check_target(model, request.output.output);
  check_keeps_inputs(request.output.output,
                     {request.statistics, request.recipe, request.family.file()});
  AtomicDirectory output(formats.place(), request.output.overwrite);
  const auto manifest = [&](const WrittenCheckpoint& written) {
    return manifest_of(request, &model, statistics, recipe, result, written);
  };
  OutputTexts texts{.manifest = manifest, .config = result.config};
  if (result.summary) {
    texts.accuracy = predicted_lines(*result.summary);
    texts.card_lines = summary_lines(*result.summary);
  }
  result.output = write_output(formats, input, output, 0, texts, diagnostics);
  formats.tell_notes(input, diagnostics);
}

}  // namespace

CalibrationResult scales_from_statistics(ScalesRequest request, Diagnostics& diagnostics) {
  check_output(request);
  if (!request.output.formats.empty()) OutputFormats{request.output};  // wrong names are told first
  const Recipe recipe = read_recipe(request.recipe);
  const Statistics statistics = read_statistics(request.statistics);
  std::optional<ModelDir> model;
  if (!request.model.empty()) model.emplace(request.model);
  CalibrationResult result{.config = config_of(request, statistics, model)};
  check_family(request, statistics.origin, result.config);
  add_seen_draft(statistics, result.config);
  const QuantPlan plan = in_context(request.recipe, [&] {
    return resolve_plan(recipe, result.config, diagnostics,
                        model ? unrun_modules(*model, result.config) : std::vector<UnrunModule>());
  });
  in_context(request.recipe, [&] {
    check_headroom(plan, request.headroom);
    check_statistics_suffice(plan);
  });
  const KvDType kv_dtype = parse_fp8_cache_dtype(request.output.kv_cache_dtype);
  result.calibration = in_context(request.statistics, [&] {
    return derive(statistics, plan, result.config,
                  {.kv_dtype = kv_dtype,
                   .ties_latent = request.output.scale_dtype != "model",
                   .all_experts = statistics.origin.all_experts,
                   .headroom = request.headroom},
                  diagnostics);
  });
  check_calibration(result.calibration);
  result.summary =
      summarize_scales(result.calibration, result.config, statistics.origin.longest_sample);
  if (model) {
    write(request, *model, statistics, recipe, result, diagnostics);
  } else {
    result.output.manifest = manifest_of(request, nullptr, statistics, recipe, result, {});
  }
  return result;
}

}  // namespace kvcal
