#include "eval_sensitivity.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "commands.h"
#include "convert/source_scales.h"
#include "core/file.h"
#include "eval/mixed_precision.h"
#include "eval_likelihood.h"
#include "eval_report.h"
#include "progress.h"
#include "table.h"

namespace kvcal {
namespace {

/// What the run found, in JSON's order.
struct Sensitivity {
  std::vector<LayerSensitivity> ranked;
  MixedSearch search;
};

std::vector<LayerKvScales> keeping(std::vector<LayerKvScales> scales,
                                   const std::vector<int64_t>& kept) {
  for (const int64_t layer : kept) scales[static_cast<size_t>(layer)] = {{}, {}, true};
  return scales;
}

Sensitivity measure(const EvalOptions& options, EvalVariants& variants,
                    const std::vector<ScoredSequence>& sequences, Diagnostics& diagnostics) {
  const EvalVariant& variant = variants.variants()[0];
  const std::vector<int64_t> layers = quantized_layers(variant);
  Scorer scorer = variants.make_scorer(options);
  const std::vector<SequenceScores> alone = score_layers(scorer, sequences, 0, layers, diagnostics);
  Sensitivity result;
  for (size_t i = 0; i < layers.size(); ++i)
    result.ranked.push_back({layers[i], *summarize(alone, i).kl_mean});
  rank(result.ranked);
  const auto measure_kept = [&](const std::vector<std::vector<int64_t>>& kept) {
    std::vector<std::vector<LayerKvScales>> scales;
    std::vector<ScoredModel> models;
    for (const auto& of : kept) scales.push_back(keeping(variant.scales, of));
    for (const auto& of : scales) models.push_back({variant.model->decoder, variant.dtype, of});
    Scorer mixed(models, variants.reference()->scored(), options.device.threads);
    const std::vector<SequenceScores> scores = score_all(mixed, sequences, diagnostics);
    std::vector<Likelihood> results;
    for (size_t i = 0; i < kept.size(); ++i) results.push_back(summarize(scores, i));
    return results;
  };
  result.search = search_kept_layers(result.ranked, options.kl_budget, measure_kept);
  return result;
}

std::string skip_layers_argument(const std::vector<int64_t>& kept) {
  std::string text = "--kv-cache-dtype-skip-layers";
  for (const int64_t layer : kept) text += " " + std::to_string(layer);
  return text;
}

/// The layers, and those that the checkpoint leaves out already.
std::vector<int64_t> with_ignored(const EvalVariant& variant, std::vector<int64_t> kept) {
  for (const int64_t layer : variant.model->config.attention_layers())
    if (variant.scales[static_cast<size_t>(layer)].ignored) kept.push_back(layer);
  std::ranges::sort(kept);
  return kept;
}

/// Why no recipe gives the cache that is measured; empty: one does.
std::string recipe_gap(const EvalVariant& variant) {
  if (variant.dtype != KvDType::kFp8E4m3)
    return "the cache is " + std::string(name_of(variant.dtype));
  if (variant.scales_source != "checkpoint") return "the scales are not the checkpoint's";
  if (std::ranges::any_of(variant.scales,
                          [](const LayerKvScales& layer) { return !layer.q.empty(); }))
    return "the checkpoint has scales of queries, too";
  return "";
}

/// A recipe for the same scales that leaves the layers out.
std::string recipe_text(const EvalOptions& options, const EvalVariant& variant,
                        const std::vector<int64_t>& kept, double kl_mean) {
  const LoadedModel& model = *variant.model;
  const bool is_per_head = std::ranges::any_of(
      variant.scales, [](const LayerKvScales& layer) { return layer.k.size() > 1; });
  const Json scheme = read_scales_of_checkpoint(model.model_dir, model.config).scheme;
  const auto observer = scheme.is_object() ? optional_string(scheme, "observer") : std::nullopt;
  std::string text = "# FP8 KV cache: mean KL " + fixed("%.6f", kl_mean) +
                     " nats on the text its layers were chosen with, budget " +
                     fixed("%g", *options.kl_budget) + ".\n";
  if (!kept.empty()) text += "# For vLLM: " + skip_layers_argument(kept) + "\n";
  if (!model.quantization.linears.empty())
    text += "# The weights' part of the recipe is not here: put these lines of ignore into it.\n";
  text += "default_stage:\n  default_modifiers:\n    QuantizationModifier:\n";
  if (!kept.empty()) text += "      ignore:\n";
  for (const int64_t layer : kept)
    text += "        - " + model.config.attention_module(layer) + "\n";
  text += "      kv_cache_scheme:\n        num_bits: 8\n        type: float\n        strategy: ";
  text += is_per_head ? "attn_head" : "tensor";
  text += "\n        dynamic: false\n        symmetric: true\n        observer: " +
          observer.value_or("static_minmax") + "\n";
  return text;
}

Json mixed_json(const EvalVariant& variant, const Sensitivity& found) {
  const ModelConfig& config = variant.model->config;
  Json rows = Json::array();
  const auto bytes_of = [&](const std::vector<int64_t>& kept) {
    return KvCache::bytes_per_token(config, variant.dtype, keeping(variant.scales, kept));
  };
  for (size_t i = 0; i < found.search.measured.size(); ++i) {
    const MixedCache& cache = found.search.measured[i];
    const std::vector<int64_t> kept = with_ignored(variant, cache.kept);
    rows.push_back({{"num_kept", kept.size()},
                    {"layers", kept},
                    {"kl_mean", *cache.result.kl_mean},
                    {"kl_p99", *cache.result.kl_p99},
                    {"top1_agreement", *cache.result.top1_agreement},
                    {"perplexity", cache.result.perplexity},
                    {"bytes_per_token", bytes_of(cache.kept)},
                    {"is_proposed", found.search.proposed == i}});
  }
  return rows;
}

/// The layers of the proposal, and its KL; all layers where nothing less is within the budget.
MixedCache proposal_of(const Sensitivity& found) {
  if (found.search.proposed) return found.search.measured[*found.search.proposed];
  MixedCache all;
  for (const LayerSensitivity& layer : found.ranked) all.kept.push_back(layer.layer);
  std::ranges::sort(all.kept);
  all.result.kl_mean = 0.0;
  return all;
}

Json sensitivity_json(const EvalOptions& options, const EvalVariant& variant,
                      const Sensitivity& found) {
  Json json = {{"kv_cache_dtype", name_of(variant.dtype)},
               {"scales", variant.scales_source},
               {"ranking", Json::array()},
               {"rows", mixed_json(variant, found)},
               {"bytes_per_token_16_bit",
                KvCache::bytes_per_token(variant.model->config,
                                         unquantized_cache_dtype(variant.model->config), {})}};
  for (const LayerSensitivity& layer : found.ranked)
    json["ranking"].push_back({{"layer", layer.layer}, {"kl_mean", layer.kl_mean}});
  if (!options.kl_budget) return json;
  json["kl_budget"] = *options.kl_budget;
  const MixedCache proposal = proposal_of(found);
  const std::vector<int64_t> kept = with_ignored(variant, proposal.kept);
  json["kept_layers"] = kept;
  json["num_layers"] = variant.model->config.attention_layers().size();
  if (proposal.kept.size() == found.ranked.size()) return json;
  if (!kept.empty()) json["skip_layers_argument"] = skip_layers_argument(kept);
  if (!recipe_gap(variant).empty()) return json;
  json["recipe"] = recipe_text(options, variant, kept, *proposal.result.kl_mean);
  return json;
}

void print_proposal(const Json& sensitivity) {
  if (!sensitivity.contains("kept_layers")) return;
  const auto kept = sensitivity.at("kept_layers").get<std::vector<int64_t>>();
  if (kept.empty()) {
    std::printf("every layer may be FP8: the mean KL is within %g\n",
                sensitivity.at("kl_budget").get<double>());
    return;
  }
  if (kept.size() == sensitivity.at("num_layers").get<size_t>()) {
    std::printf("no FP8 cache is within %g: every layer would keep 16 bits\n",
                sensitivity.at("kl_budget").get<double>());
    return;
  }
  std::printf("to stay within %g keep %zu of %zu layers in 16 bits: %s\nvLLM: %s\n",
              sensitivity.at("kl_budget").get<double>(), kept.size(),
              sensitivity.at("num_layers").get<size_t>(), range_text(kept).c_str(),
              sensitivity.at("skip_layers_argument").get<std::string>().c_str());
}

void print(const EvalVariant& variant, const Json& sensitivity) {
  std::printf("%s cache, mean KL with only one layer quantized:\n",
              std::string(name_of(variant.dtype)).c_str());
  std::fflush(stdout);
  Table ranking({"layer", "mean KL"});
  for (const Json& layer : sensitivity.at("ranking"))
    ranking.add({layer.at("layer").dump(), fixed("%.6f", layer.at("kl_mean").get<double>())});
  ranking.print(std::cout);
  std::cout.flush();
  std::printf("\nthe worst layers in 16 bits, all others FP8:\n");
  std::fflush(stdout);
  Table rows({"kept", "mean KL", "perplexity", "same top", "bytes a token", ""});
  for (const Json& row : sensitivity.at("rows"))
    rows.add({row.at("num_kept").dump(), fixed("%.6f", row.at("kl_mean").get<double>()),
              fixed("%.4f", row.at("perplexity").get<double>()),
              fixed("%.2f %%", 100.0 * row.at("top1_agreement").get<double>()),
              row.at("bytes_per_token").dump(),
              row.at("is_proposed").get<bool>() ? "proposed" : ""});
  rows.print(std::cout);
  std::cout.flush();
  print_proposal(sensitivity);
}

}  // namespace

void run_sensitivity(const EvalOptions& options) {
  if (!options.output_recipe.empty() && !options.kl_budget)
    fail("--output-recipe needs --kl-budget, which says how many layers to keep");
  TerminalDiagnostics diagnostics;
  EvalVariants variants(options, true);
  const EvalVariant& variant = variants.variants()[0];
  if (!is_fp8(variant.dtype))
    fail("--task sensitivity needs an FP8 cache, this one is ", name_of(variant.dtype),
         "; name a calibrated checkpoint, --scales or --unit-scales");
  if (quantized_layers(variant).empty())
    fail("--task sensitivity: the checkpoint leaves every layer's cache unquantized");
  if (const std::string gap = recipe_gap(variant); !options.output_recipe.empty() && !gap.empty())
    fail("--output-recipe: no recipe makes this cache, ", gap);
  const std::vector<ScoredSequence> sequences = read_sequences(options, variants, diagnostics);
  const Sensitivity found = measure(options, variants, sequences, diagnostics);
  Json json = run_json(options, variants, sequences.size());
  json["sensitivity"] = sensitivity_json(options, variant, found);
  const bool has_recipe = json.at("sensitivity").contains("recipe");
  if (!options.output_recipe.empty() && has_recipe)
    write_file_atomically(options.output_recipe,
                          json.at("sensitivity").at("recipe").get<std::string>(),
                          options.overwrite);
  if (options.json)
    std::cout << dump_json(json);
  else
    print(variant, json.at("sensitivity"));
  std::cout.flush();
  write_eval_report(json, options.report);
  if (!options.output_recipe.empty() && !has_recipe)
    throw GateMissed("no recipe: with FP8 in the least sensitive layer alone the mean KL is over " +
                     fixed("%g", *options.kl_budget));
}

}  // namespace kvcal
