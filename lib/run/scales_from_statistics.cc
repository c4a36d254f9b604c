#include "run/scales_from_statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "calib/plan/resolve_plan.h"
#include "calib/scales/derive.h"
#include "calib/statistics/observed_statistics.h"
#include "convert/output_model.h"
#include "core/file.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "export/manifest.h"
#include "export/statistics_file.h"
#include "family/expected_tensors.h"
#include "run/command_paths.h"
#include "run/subject.h"
#include "stored/kv_scales.h"
#include "stored/read_model_config.h"
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
  if (result.summary) input.summary = summary_json(*result.summary, input.origin.num_tokens);
  return make_manifest(input, recipe, result.calibration, written);
}

/// Checks that model, output and format are given together.
void check_output(const ScalesRequest& request) {
  if (request.output.output.empty() != request.model.empty())
    fail_usage(request.model.empty() ? "--output needs the model it is written for, give --model"
                                     : "--model is for what is written, give --output");
  if (!request.model.empty()) return;
  if (!request.output.formats.empty() || !request.output.engines.empty())
    fail_usage(request.output.formats.empty() ? "--for" : "--format",
               " is for what is written, give --model and --output");
}

/// Writes the output of a calibration of the model.
void write(const ScalesRequest& request, ModelDir model, const Statistics& statistics,
           const Recipe& recipe, CalibrationResult& result, Diagnostics& diagnostics) {
  auto kept = read_kept_quantization(model);
  auto weights = read_checkpoint_quantization(model, result.config);
  PlannedModel subject{recipe,          std::move(model),  result.config, result.calibration.plan,
                       std::move(kept), std::move(weights)};
  for (const std::string& warning : subject.quantization.warnings)
    diagnostics.warn(request.model + ": " + warning);
  check_described(subject.model_dir, subject.config, subject.quantization);
  const OutputFormats formats = subject.settle_output(request.output, diagnostics);
  const ExportInput input = subject.output_of(result.calibration);
  formats.check(input);
  check_target(subject.model_dir, request.output.output);
  check_keeps_inputs(request.output.output,
                     {request.statistics, request.recipe, request.family.file()});
  AtomicDirectory output(formats.place(), request.output.overwrite);
  const auto manifest = [&](const WrittenCheckpoint& written) {
    return manifest_of(request, &subject.model_dir, statistics, recipe, result, written);
  };
  result.output =
      write_output(formats, input, output, 0, output_texts(result, manifest), diagnostics);
  formats.tell_notes(input, diagnostics);
}

std::vector<LayerKvScales> scales_of(const VariantSpec& spec, const CacheType& type,
                                     const ModelConfig& config) {
  if (spec.scales) return scales_as(type, spec.scales->layers, spec.scales->made_for);
  if (needs_scales(type)) return unit_scales(config);
  std::vector<LayerKvScales> scales(static_cast<size_t>(config.num_hidden_layers));
  leave_plain(scales, type, config);
  return scales;
}

std::string_view source_of(const VariantSpec& spec, const CacheType& type) {
  if (spec.scales) return "calibrated";
  return needs_scales(type) ? "unit" : "dynamic";
}

/// Shares of all values of K or V of the layers, and the root of the mean of their channel errors.
struct SideShares {
  double clipped = 0, to_zero = 0, relative_error = 0;
};

SideShares shares_of(const std::vector<LayerCacheLoss>& layers, SideLoss LayerCacheLoss::*side) {
  CodeErrors sum;
  double error = 0;
  for (const LayerCacheLoss& layer : layers) {
    sum.add((layer.*side).codes);
    error += (layer.*side).channel_error / static_cast<double>(layers.size());
  }
  if (sum.values == 0) return {};
  return {.clipped = sum.clipped / sum.values,
          .to_zero = sum.to_zero / sum.values,
          .relative_error = std::sqrt(error)};
}

/// Shares of K and of V.
Json shares_json(const std::vector<LayerCacheLoss>& layers) {
  const auto side_json = [&](SideLoss LayerCacheLoss::*side) -> Json {
    const SideShares shares = shares_of(layers, side);
    return {{"clipped", shares.clipped},
            {"to_zero", shares.to_zero},
            {"relative_error", shares.relative_error}};
  };
  return {{"k", side_json(&LayerCacheLoss::k)}, {"v", side_json(&LayerCacheLoss::v)}};
}

/// Shares of a million are told apart.
std::string share_text(double share) {
  return share == 0 ? "0" : fixed("%.4f %%", 100 * share);
}

TextTable losses_table(const std::string& second) {
  return TextTable(
      {"cache", second, "K error", "V error", "K clipped", "V clipped", "K to zero", "V to zero"});
}

void add_losses(TextTable& table, const std::string& cache, const std::string& second,
                const std::vector<LayerCacheLoss>& layers) {
  const SideShares k = shares_of(layers, &LayerCacheLoss::k);
  const SideShares v = shares_of(layers, &LayerCacheLoss::v);
  std::vector<std::string> row{cache, second};
  for (const double share :
       {k.relative_error, v.relative_error, k.clipped, v.clipped, k.to_zero, v.to_zero})
    row.push_back(share_text(share));
  table.add(std::move(row));
}

}  // namespace

CalibrationResult scales_from_statistics(const ScalesRequest& request, Diagnostics& diagnostics) {
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
  std::string cache_dtype = request.output.kv_cache_dtype;
  settle_cache_dtype(cache_dtype, plan);
  const KvDType kv_dtype = parse_fp8_cache_dtype(cache_dtype);
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
    write(request, *std::move(model), statistics, recipe, result, diagnostics);
  } else {
    result.output.manifest = manifest_of(request, nullptr, statistics, recipe, result, {});
  }
  return result;
}

std::vector<AdvisedCache> advise_caches(const CalibrationResult& result) {
  const CacheLosses losses(result.calibration, result.config);
  std::vector<AdvisedCache> caches;
  for (const VariantSpec& spec : every_cache(result.config, result.calibration)) {
    const CacheType type = parse_cache_type(spec.cache.kv_cache_dtype);
    const std::vector<LayerKvScales> scales = scales_of(spec, type, result.config);
    AdvisedCache cache{
        .label = {.name = spec.name,
                  .type = type,
                  .scales_source = std::string(source_of(spec, type)),
                  .bytes_per_token = KvCache::bytes_per_token(result.config, type, scales)},
        .layers = losses.of(type, scales)};
    if (cache.layers.empty()) fail("the statistics have no K and V, nothing can be said of caches");
    cache.loss = expected_loss(cache.layers);
    caches.push_back(std::move(cache));
  }
  std::ranges::stable_sort(caches, {}, &AdvisedCache::loss);
  return caches;
}

Json to_json(const std::vector<AdvisedCache>& caches) {
  Json list = Json::array();
  for (const AdvisedCache& cache : caches) {
    Json& json = list.emplace_back(Json{{"name", cache.label.name}});
    json.update(cache_json(cache.label));
    json["expected_loss"] = cache.loss;
    json.update(shares_json(cache.layers));
    for (const LayerCacheLoss& one : cache.layers)
      json["layers"].emplace_back(Json{{"layer", one.layer}}).update(shares_json({one}));
  }
  return {{"caches", std::move(list)}};
}

std::string advice_text(const std::vector<AdvisedCache>& caches, size_t most_rows) {
  TextTable ranking = losses_table("bytes a token"), by_layer = losses_table("layer");
  size_t num_rows = 0;
  for (const AdvisedCache& cache : caches) {
    add_losses(ranking, cache.label.name, std::to_string(cache.label.bytes_per_token),
               cache.layers);
    for (const LayerCacheLoss& layer : cache.layers)
      add_losses(by_layer, cache.label.name, std::to_string(layer.layer), {layer});
    num_rows += cache.layers.size();
  }
  const std::string text =
      "caches by what K and V are expected to lose, the least first:\n" + ranking.text();
  if (num_rows > most_rows)
    return text + "(--verbose lists each layer of each cache: " + counted(num_rows, "row") + ")\n";
  return text + "by layer:\n" + by_layer.text();
}

}  // namespace kvcal
