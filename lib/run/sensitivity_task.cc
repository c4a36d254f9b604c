#include <algorithm>
#include <sstream>

#include "convert/source_scales.h"
#include "core/text.h"
#include "run/evaluation.h"
#include "run/evaluation_parts.h"

namespace kvcal {
namespace {

using Layers = std::vector<int64_t>;

struct LayerRanking {
  std::vector<LayerSensitivity> ranked;
  MixedSearch search;
};

std::vector<LayerKvScales> keeping(std::vector<LayerKvScales> scales, const Layers& kept) {
  for (const int64_t layer : kept) scales[static_cast<size_t>(layer)] = {.ignored = true};
  return scales;
}

LayerRanking rank_layers(const EvalVariants& variants, const std::vector<ScoredSequence>& sequences,
                         std::optional<double> kl_budget, Diagnostics& diagnostics) {
  const EvalVariant& variant = variants.variants()[0];
  const Layers layers = variant.quantized_layers();
  Scorer scorer = variants.make_scorer();
  const std::vector<SequenceScores> alone = score_layers(scorer, sequences, 0, layers, diagnostics);
  LayerRanking result;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Likelihood only = summarize(alone, i);
    result.ranked.push_back({layers[i], *only.kl_mean, *only.kl_stderr});
  }
  rank(result.ranked);
  const auto measure_kept = [&](const std::vector<Layers>& kept) {
    std::vector<std::vector<LayerKvScales>> scales;
    for (const Layers& of : kept) scales.push_back(keeping(variant.scales, of));
    return variants.score_scales(scales, sequences, diagnostics);
  };
  Layers ranked;
  for (const LayerSensitivity& layer : result.ranked) ranked.push_back(layer.layer);
  result.search = kl_budget ? find_kept_layers(ranked, *kl_budget, ranked.size(), measure_kept)
                            : score_layer_counts(ranked, measure_kept);
  return result;
}

/// The layers, with those that read their caches, and those that the checkpoint already leaves out.
Layers with_ignored(const EvalVariant& variant, Layers kept) {
  const ModelConfig& config = variant.model->config;
  const Layers chosen = kept;
  for (const int64_t layer : config.attention_layers()) {
    const bool reads_chosen =
        !config.has_own_cache(layer) &&
        std::ranges::find(chosen, config.layer(layer).cache_layer) != chosen.end();
    if (reads_chosen || variant.scales[static_cast<size_t>(layer)].ignored) kept.push_back(layer);
  }
  std::ranges::sort(kept);
  return kept;
}

/// Reason why no recipe gives the measured cache; empty: a recipe does.
std::string recipe_gap(const EvalVariant& variant) {
  if (variant.label.type != KvDType::kFp8E4m3)
    return "the cache is " + std::string(name_of(variant.label.type));
  if (variant.label.scales_source != "checkpoint") return "the scales are not the checkpoint's";
  if (variant.label.fp8_attention) return "attention is in FP8, too";
  if (std::ranges::any_of(variant.scales,
                          [](const LayerKvScales& layer) { return !layer.q.empty(); }))
    return "the checkpoint has scales of queries, too";
  return "";
}

/// A recipe for the same scales that leaves the proposal's layers out.
std::string recipe_text(const EvalVariant& variant, const report::UnquantizedLayers& proposal,
                        double kl_mean) {
  const LoadedModel& model = *variant.model;
  const bool is_per_head = std::ranges::any_of(
      variant.scales, [](const LayerKvScales& layer) { return layer.k.size() > 1; });
  const Json scheme = read_scales_of_checkpoint(model.model_dir, model.config).scheme;
  const auto observer = scheme.is_object() ? optional_string(scheme, "observer") : std::nullopt;
  std::string text = "# FP8 KV cache: mean KL " + fixed("%.6f", kl_mean) +
                     " nats on the text its layers were chosen with, budget " +
                     fixed("%g", proposal.kl_budget) + ".\n";
  if (!proposal.layers.empty()) text += "# For vLLM: " + proposal.skip_layers_argument + "\n";
  if (!model.quantization.linears.empty())
    text += "# The weights' part of the recipe is not here: put these lines of ignore into it.\n";
  text += "default_stage:\n  default_modifiers:\n    QuantizationModifier:\n";
  if (!proposal.layers.empty()) text += "      ignore:\n";
  for (const int64_t layer : proposal.layers)
    text += "        - " + model.config.attention_module(layer) + "\n";
  text += "      kv_cache_scheme:\n        num_bits: 8\n        type: float\n        strategy: ";
  text += is_per_head ? "attn_head" : "tensor";
  text += "\n        dynamic: false\n        symmetric: true\n        observer: " +
          observer.value_or("static_minmax") + "\n";
  return text;
}

std::vector<report::MixedCacheRow> rows_of(const EvalVariant& variant, const MixedSearch& search) {
  std::vector<report::MixedCacheRow> rows;
  for (size_t i = 0; i < search.measured.size(); ++i) {
    const MixedCache& cache = search.measured[i];
    rows.push_back(
        {.kept = with_ignored(variant, cache.kept),
         .result = cache.result,
         .bytes_per_token = KvCache::bytes_per_token(variant.model->config, variant.label.type,
                                                     keeping(variant.scales, cache.kept)),
         .is_proposed = search.proposed == i});
  }
  return rows;
}

/// The search's proposal; all layers where no smaller set meets the budget.
report::UnquantizedLayers proposal_of(const EvalVariant& variant, const LayerRanking& found,
                                      double kl_budget) {
  Layers kept;
  for (const LayerSensitivity& layer : found.ranked) kept.push_back(layer.layer);
  double kl_mean = 0.0;
  if (found.search.proposed) {
    const MixedCache& proposed = found.search.measured[*found.search.proposed];
    kept = proposed.kept;
    kl_mean = *proposed.result.kl_mean;
  }
  report::UnquantizedLayers proposal{.kl_budget = kl_budget,
                                     .layers = with_ignored(variant, kept),
                                     .num_layers = variant.model->config.attention_layers().size()};
  if (kept.size() == found.ranked.size()) return proposal;
  if (!proposal.layers.empty())
    proposal.skip_layers_argument =
        "--kv-cache-dtype-skip-layers " +
        join(proposal.layers, " ", [](int64_t layer) { return std::to_string(layer); });
  if (recipe_gap(variant).empty()) proposal.recipe = recipe_text(variant, proposal, kl_mean);
  return proposal;
}

void check_variant(const EvalVariant& variant, bool needs_recipe) {
  if (!is_quantized(variant.label.type))
    fail("--task sensitivity needs a quantized cache, this one is ", name_of(variant.label.type),
         "; name a calibrated checkpoint, --scales or --unit-scales");
  if (variant.quantized_layers().empty())
    fail("--task sensitivity: the checkpoint leaves every layer's cache unquantized");
  if (const std::string gap = recipe_gap(variant); needs_recipe && !gap.empty())
    fail("--output-recipe: no recipe makes this cache, ", gap);
}

Json rows_json(const std::vector<report::MixedCacheRow>& rows) {
  Json list = Json::array();
  for (const report::MixedCacheRow& row : rows) {
    Json& json = list.emplace_back(Json{{"num_kept", row.kept.size()},
                                        {"layers", row.kept},
                                        {"kl_mean", *row.result.kl_mean},
                                        {"kl_stderr", *row.result.kl_stderr},
                                        {"kl_p99", *row.result.kl_p99},
                                        {"top1_agreement", *row.result.top1_agreement},
                                        {"perplexity", row.result.perplexity},
                                        {"bytes_per_token", row.bytes_per_token},
                                        {"is_proposed", row.is_proposed}});
    if (row.result.perplexity_increase)
      json["perplexity_increase"] = *row.result.perplexity_increase;
    add_verdict(damage_of(row.result), json);
  }
  return list;
}

void put_proposal(const report::UnquantizedLayers& proposal, std::ostream& out) {
  const std::string budget = fixed("%g", proposal.kl_budget);
  if (proposal.layers.empty())
    out << "every layer may be FP8: the mean KL is within " << budget << '\n';
  else if (proposal.layers.size() == proposal.num_layers)
    out << "no FP8 cache is within " << budget << ": every layer would keep 16 bits\n";
  else
    out << "to stay within " << budget << " keep " << proposal.layers.size() << " of "
        << counted(proposal.num_layers, "layer") << " in 16 bits: " << range_text(proposal.layers)
        << "\nvLLM: " << proposal.skip_layers_argument << '\n';
}

}  // namespace

EvalResult evaluate_sensitivity(const EvalOptions& options, const SensitivityOptions& asked,
                                Diagnostics& diagnostics) {
  EvalVariants variants(options, true, diagnostics);
  const EvalVariant& variant = variants.variants()[0];
  check_variant(variant, asked.needs_recipe);
  const ModelConfig& config = variant.model->config;
  const std::vector<ScoredSequence> sequences =
      read_sequences(options, variants.model(), diagnostics);
  const LayerRanking found = rank_layers(variants, sequences, asked.kl_budget, diagnostics);
  tell_warnings(variants.model().backend, diagnostics);
  EvalResult result{.report = page_of(options, "sensitivity", variants, sequences.size())};
  report::Sensitivity& sensitivity = result.report.sensitivity.emplace(report::Sensitivity{
      .cache = variant.label,
      .ranking = found.ranked,
      .rows = rows_of(variant, found.search),
      .bytes_per_token_16_bit =
          KvCache::bytes_per_token(config, unquantized_cache_dtype(config), {})});
  if (asked.kl_budget) sensitivity.proposal = proposal_of(variant, found, *asked.kl_budget);
  return result;
}

Json sensitivity_json(const EvalOptions& options, const report::EvalReport& found) {
  const report::Sensitivity& sensitivity = found.sensitivity.value();
  Json json = run_json(options, found);
  Json& entry = json["sensitivity"] = cache_json(sensitivity.cache);
  entry["ranking"] = Json::array();
  for (const LayerSensitivity& layer : sensitivity.ranking)
    entry["ranking"].push_back(
        {{"layer", layer.layer}, {"kl_mean", layer.kl_mean}, {"kl_stderr", layer.kl_stderr}});
  entry["rows"] = rows_json(sensitivity.rows);
  entry["bytes_per_token_16_bit"] = sensitivity.bytes_per_token_16_bit;
  if (!sensitivity.proposal) return json;
  const report::UnquantizedLayers& proposal = *sensitivity.proposal;
  entry["kl_budget"] = proposal.kl_budget;
  entry["kept_layers"] = proposal.layers;
  entry["num_layers"] = proposal.num_layers;
  if (!proposal.skip_layers_argument.empty())
    entry["skip_layers_argument"] = proposal.skip_layers_argument;
  if (!proposal.recipe.empty()) entry["recipe"] = proposal.recipe;
  return json;
}

std::string sensitivity_text(const report::Sensitivity& found, size_t most_rows) {
  std::ostringstream out;
  const size_t num_layers = found.ranking.size();  // in order of KL, the largest first
  out << cache_text(found.cache) << " cache, mean KL with only one layer quantized"
      << listed_text(num_layers, most_rows);
  TextTable ranking({"layer", "mean KL"});
  const std::span ranked = std::span(found.ranking).first(num_listed(num_layers, most_rows));
  for (const LayerSensitivity& layer : ranked)
    ranking.add({std::to_string(layer.layer), fixed("%.6f", layer.kl_mean)});
  out << ranking.text();
  out << "\nthe worst layers in 16 bits, all others FP8:\n";
  TextTable rows({"kept", "mean KL", "perplexity", "same top", "bytes a token", "verdict", ""});
  for (const report::MixedCacheRow& row : found.rows)
    rows.add({std::to_string(row.kept.size()), fixed("%.6f", *row.result.kl_mean),
              fixed("%.4f", row.result.perplexity), exact_percent(*row.result.top1_agreement),
              std::to_string(row.bytes_per_token),
              std::string(words_of(judge(damage_of(row.result)).damage)),
              row.is_proposed ? "proposed" : ""});
  out << rows.text();
  if (found.proposal) put_proposal(*found.proposal, out);
  return out.str();
}

}  // namespace kvcal
