#include "run/scored_scales.h"

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "core/folder.h"
#include "core/text.h"
#include "datasets/named_dataset.h"
#include "engines/engine_rules.h"
#include "export/writer.h"
#include "rewrite/kv_factors.h"
#include "run/command_output.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

constexpr const char* kCalibrated = "calibrated";
constexpr const char* kUnit = "unit";

/// The written scales on the source's weights, or on the output's where these are others.
EvalOptions eval_options(const CalibrateRequest& request, const CalibrationResult& result) {
  const WrittenFolder& folder = result.output.folders.at(0);
  const bool makes_weights = request.smooths || result.calibration.plan.quantizes_weights();
  const bool has_own_weights =
      makes_weights && any_has(folder.format, &OutputFormat::is_checkpoint) && !folder.is_overlay;
  EvalOptions eval =
      options_of_left(request, result.cost ? static_cast<int64_t>(result.cost->num_samples) : 0);
  if (has_own_weights) {
    eval.model = folder.path.string();
    eval.reference = request.model;
  }
  const bool is_int8 = result.calibration.kv_format.is_int8();
  const std::string dtype =
      is_int8 ? std::string(name_of(CacheFormat::kInt8)) : request.output.kv_cache_dtype;
  eval.variants = {std::string(kCalibrated) + "=" + dtype +
                       (has_own_weights ? ":checkpoint" : ":" + folder.path.string()),
                   std::string(kUnit) + "=" + dtype + ":unit"};
  return eval;
}

/// The caches that are measured beside calibrated scales and scale 1.0 of FP8.
std::vector<VariantSpec> other_caches(const CalibrationResult& result) {
  std::vector<VariantSpec> specs = every_cache(result.config, result.calibration);
  std::erase_if(specs, [](const VariantSpec& spec) {
    return spec.name == "fp8, 1.0" || spec.name == "fp8, by layer";
  });
  return specs;
}

std::vector<ScoredCache> scored_caches(const EvalVariants& variants,
                                       const std::vector<SequenceScores>& scores) {
  std::vector<ScoredCache> caches;
  for (size_t i = 0; i < variants.variants().size(); ++i)
    caches.push_back({variants.variants()[i].label, summarize(scores, i)});
  caches[0].label.name = std::string(name_of(caches[0].label.type)) + ", these scales";
  caches[1].label.name = std::string(name_of(caches[1].label.type)) + ", 1.0";
  for (ScoredCache& cache : caches)
    if (cache.label.scales_source != "unit" && cache.label.scales_source != "dynamic")
      cache.label.scales_source = kCalibrated;
  std::ranges::stable_sort(caches, {},
                           [](const ScoredCache& cache) { return cache.result.kl_mean.value(); });
  return caches;
}

/// "0.001234 ± 0.000056"
std::string with_error(double mean, double error) {
  return fixed("%.6f", mean) + " ± " + fixed("%.6f", error);
}

std::string increase_text(const Likelihood& result) {
  return fixed("%.4f", result.perplexity) + " (" +
         fixed("%+.3f %%", 100 * result.perplexity_increase.value()) + ")";
}

/// damage: of the result.
Json likelihood_json(const Likelihood& result, const CacheDamage& damage) {
  Json json = {{"kl_mean", result.kl_mean.value()},
               {"kl_stderr", result.kl_stderr.value()},
               {"top1_agreement", result.top1_agreement.value()},
               {"perplexity", result.perplexity},
               {"perplexity_increase", result.perplexity_increase.value()}};
  add_verdict(damage, json);
  return json;
}

/// Share of the values of K or of V of the layers where any is clipped.
double clipped_share(const ScaleSummary& summary, SideErrors LayerErrors::*side,
                     CodeErrors SideErrors::*scales) {
  CodeErrors sum;
  for (const LayerErrors& layer : summary.layers)
    if (const CodeErrors& one = layer.*side.*scales; one.clipped > 0) sum.add(one);
  return sum.values > 0 ? sum.clipped / sum.values : 0.0;
}

std::string gain_text(const ScoredScales& measured) {
  const PairedDifference& gain = measured.gain;
  switch (better_of(measured)) {
    case BetterScales::kTooFewTokens:
      return "too few tokens to tell which is better";
    case BetterScales::kNoDifference:
      return "no difference beyond two standard errors (" +
             with_error(gain.mean, gain.standard_error) + ")";
    case BetterScales::kCalibrated:
      return "these scales are better by " + with_error(gain.mean, gain.standard_error);
    case BetterScales::kUnit:
      break;
  }
  return "1.0 is better by " + with_error(-gain.mean, gain.standard_error);
}

Damage damage_found(const CacheDamage& damage) {
  return judge(damage).damage;
}

/// The line that serves the model as it is, with these arguments.
std::string serve_line(const std::string& model, std::string_view arguments = {}) {
  return std::string(engine_rules().at("vllm").command) + " " + shell_word(model) +
         (arguments.empty() ? "" : " ") + std::string(arguments);
}

/// The line of a cache that vLLM makes of any checkpoint, by its name; empty: there is none.
std::string line_of(const ScoredCache& cache, const RemedyFacts& facts) {
  const bool needs_scales = cache.label.scales_source == "calibrated";
  const std::string name(name_of(cache.label.type));
  const bool is_vllms = name.ends_with("_per_token_head") || name == "nvfp4" || name == "fp8_e5m2";
  return is_vllms && !needs_scales ? serve_line(facts.model, "--kv-cache-dtype " + name)
                                   : std::string();
}

/// The least KL of the caches that a line serves; nullptr where none is better than `worse`.
const ScoredCache* best_cache(const RemedyFacts& facts, Damage worse) {
  if (!facts.caches) return nullptr;
  const ScoredCache* best = nullptr;
  for (const ScoredCache& cache : *facts.caches) {
    const CacheDamage damage = damage_of(cache.result);
    if (line_of(cache, facts).empty() || damage_found(damage) >= worse) continue;
    if (!best || damage.kl_mean < damage_of(best->result).kl_mean) best = &cache;
  }
  return best;
}

/// Bytes of a token's cache with these layers in 16 bits.
uint64_t bytes_with(const RemedyFacts& facts, const std::vector<int64_t>& layers) {
  uint64_t bytes = facts.bytes_fp8;
  for (const int64_t layer : layers)
    bytes += static_cast<uint64_t>(facts.config.cache(layer).width());
  return bytes;
}

/// nullopt where no number of layers was found that keeps the budget.
std::optional<Remedy> layers_in_16_bits(const RemedyFacts& facts, const std::string& output) {
  const KlBudgetOutcome* found = facts.proposed;
  const double budget = found ? found->kl_budget : kFineLimits.kl_mean;
  Remedy remedy{.name = "16 bits for the layers that cost most",
                .command = facts.calibrate + " --kl-budget " + short_float(budget) + output};
  if (!found) {
    remedy.kl_limit = budget;
    return remedy;
  }
  if (!found->layers || found->layers->empty()) return std::nullopt;
  const Likelihood& result = found->result;
  remedy.name = "16 bits for " + layer_range_text(*found->layers);
  remedy.damage = damage_of(result);
  remedy.bytes_per_token = bytes_with(facts, *found->layers);
  return remedy;
}

std::string cost_text(const Remedy& remedy) {
  std::string text;
  if (remedy.damage)
    text = std::string(remedy.damage->is_predicted ? "predicted KL " : "KL ") +
           fixed("%.4f", remedy.damage->kl_mean) + " (" +
           std::string(words_of(damage_found(*remedy.damage))) + ")";
  else if (remedy.kl_limit)
    text = "KL at most " + short_float(*remedy.kl_limit);
  else
    text = "KL to be measured";
  return text + ", " +
         (remedy.bytes_per_token ? std::to_string(*remedy.bytes_per_token) + " bytes a token"
                                 : std::string("memory as it then says"));
}

}  // namespace

EvalOptions options_of_left(const CalibrateRequest& request, int64_t num_used) {
  EvalOptions eval;
  eval.model = request.model;
  eval.dataset = request.dataset.empty() ? kDefaultDataset : request.dataset;
  eval.family = request.family;
  eval.device = request.device;
  eval.sequences = {.num_sequences = request.score.num_sequences,
                    .max_seq_length = request.score.max_seq_length,
                    .shuffle_seed = request.samples.shuffle_seed,
                    .records = request.records};
  if (num_used > 0 && num_used < open_dataset(eval.dataset, {.records = request.records})->size())
    eval.sequences.num_skipped = num_used;
  return eval;
}

CacheDamage calibrated_damage(const ScoredScales& measured) {
  return damage_of(measured.calibrated, measured.calibrated_clipped);
}

CacheDamage unit_damage(const ScoredScales& measured) {
  return damage_of(measured.unit, measured.unit_clipped);
}

BetterScales better_of(const ScoredScales& measured) {
  if (measured.calibrated.num_tokens < kFewTokens) return BetterScales::kTooFewTokens;
  const PairedDifference& gain = measured.gain;
  if (std::fabs(gain.mean) <= 2 * gain.standard_error) return BetterScales::kNoDifference;
  return gain.mean > 0 ? BetterScales::kCalibrated : BetterScales::kUnit;
}

ScoredScales score_scales(const CalibrateRequest& request, const CalibrationResult& result,
                          Diagnostics& diagnostics) {
  EvalOptions eval = eval_options(request, result);
  if (request.score.every_cache) eval.more_variants = other_caches(result);
  EvalVariants variants(eval, true, diagnostics);
  const std::vector<ScoredSequence> sequences =
      read_left_sequences(eval, variants.model(), diagnostics);
  Scorer scorer = variants.make_scorer();
  const std::vector<SequenceScores> scores = score_all(scorer, sequences, diagnostics);
  // What scales clip of K that were judged by attention is what all keys have in common.
  const auto clipped = [&](CodeErrors SideErrors::*scales, bool counts_k) {
    if (!result.summary) return 0.0;
    const double of_v = clipped_share(*result.summary, &LayerErrors::v, scales);
    return counts_k ? std::max(of_v, clipped_share(*result.summary, &LayerErrors::k, scales))
                    : of_v;
  };
  return {.num_sequences = sequences.size(),
          .is_held_out = eval.sequences.num_skipped > 0,
          .calibrated = summarize(scores, 0),
          .unit = summarize(scores, 1),
          .calibrated_clipped = clipped(&SideErrors::calibrated, !result.by_attention),
          .unit_clipped = clipped(&SideErrors::unit, true),
          .gain = kl_difference(scores, 1, 0),
          .caches = request.score.every_cache ? scored_caches(variants, scores)
                                              : std::vector<ScoredCache>()};
}

Likelihood score_other(const CalibrateRequest& request, const CalibrationResult& result,
                       const OtherCache& other, Diagnostics& diagnostics) {
  EvalOptions eval = eval_options(request, result);
  eval.model = other.model;
  if (other.model != request.model) eval.reference = request.model;
  eval.variants = {"other=" + request.output.kv_cache_dtype + ":" + other.scales};
  EvalVariants variants(eval, true, diagnostics);
  const std::vector<ScoredSequence> sequences =
      read_left_sequences(eval, variants.model(), diagnostics);
  Scorer scorer = variants.make_scorer();
  return summarize(score_all(scorer, sequences, diagnostics), 0);
}

int num_models_scored(const ScoreOptions& options) {
  constexpr int kFp8Alone = 3;  // 16 bits, calibrated scales, scale 1.0
  constexpr int kMore = 2;      // FP8 by head, E5M2
  if (!options.every_cache) return kFp8Alone;
  int formats = 0;  // with scale 1.0 and calibrated ones, of INT8 calibrated ones alone
  for (const CacheFormat format : kCacheFormats)
    if (layout_of(format).latent == 0)
      formats += layout_of(format).needs_scales && format != CacheFormat::kInt8 ? 2 : 1;
  return kFp8Alone + kMore + formats;
}

Json to_json(const ScoredScales& measured) {
  Json caches = Json::array();
  for (const ScoredCache& cache : measured.caches) {
    Json& entry = caches.emplace_back(Json{{"name", cache.label.name}});
    entry.update(cache_json(cache.label));
    entry.update(likelihood_json(cache.result, damage_of(cache.result)));
  }
  Json json = {
      {"num_sequences", measured.num_sequences},
      {"num_tokens", measured.calibrated.num_tokens},
      {"held_out", measured.is_held_out},
      {"reference_perplexity", measured.calibrated.reference_perplexity.value()},
      {"calibrated", likelihood_json(measured.calibrated, calibrated_damage(measured))},
      {"unit", likelihood_json(measured.unit, unit_damage(measured))},
      {"gain", {{"kl_mean", measured.gain.mean}, {"kl_stderr", measured.gain.standard_error}}}};
  if (!caches.empty()) json["caches"] = std::move(caches);
  return json;
}

LabelledLines scored_lines(const ScoredScales& measured) {
  const Likelihood &own = measured.calibrated, &unit = measured.unit;
  return {{"verdict", "with these scales " + verdict_text(calibrated_damage(measured))},
          {"verdict 1.0", "with scale 1.0 " + verdict_text(unit_damage(measured))},
          {"difference", gain_text(measured)},
          {"measured", counted(measured.num_sequences, "sequence") + ", " +
                           counted(own.num_tokens, "token") +
                           (measured.is_held_out ? " that the calibration did not see" : "")},
          {"KL", with_error(*own.kl_mean, *own.kl_stderr) + " with these scales, " +
                     with_error(*unit.kl_mean, *unit.kl_stderr) +
                     " with 1.0 (nats a token, against " + "16 bits)"},
          {"perplexity", fixed("%.4f", *own.reference_perplexity) + " in 16 bits, " +
                             increase_text(own) + " with these scales, " + increase_text(unit) +
                             " with 1.0"}};
}

std::string caches_text(const std::vector<ScoredCache>& caches) {
  TextTable table(
      {"cache", "bytes a token", "mean KL", "standard error", "perplexity", "same top", "verdict"});
  for (const ScoredCache& cache : caches)
    table.add({cache.label.name, std::to_string(cache.label.bytes_per_token),
               fixed("%.6f", cache.result.kl_mean.value()),
               fixed("%.6f", cache.result.kl_stderr.value()),
               fixed("%+.3f %%", 100 * cache.result.perplexity_increase.value()),
               fixed("%.2f %%", 100 * cache.result.top1_agreement.value()),
               std::string(words_of(judge(damage_of(cache.result)).damage))});
  return table.text();
}

std::vector<Remedy> remedies_of(const RemedyFacts& facts) {
  const std::optional<CacheDamage>&calibrated = facts.calibrated, &unit = facts.unit;
  const Damage found = facts.are_made || !unit
                           ? damage_found(calibrated.value())
                           : std::min(damage_found(calibrated.value()), damage_found(*unit));
  if (found == Damage::kFine) return {};
  const std::string output = " -o " + shell_word(facts.output);
  std::vector<Remedy> remedies;
  if (!facts.are_made && unit && damage_found(*calibrated) < damage_found(*unit))
    remedies.push_back({.name = "calibrated scales",
                        .damage = calibrated,
                        .bytes_per_token = facts.bytes_fp8,
                        .command = facts.calibrate + output});
  if (unit && damage_found(*unit) < damage_found(*calibrated) && unit->clipped == 0)
    remedies.push_back({.name = "scale 1.0, of the model itself",
                        .damage = unit,
                        .bytes_per_token = facts.bytes_fp8,
                        .command = unit_serve_line(facts.model)});
  if (!facts.by_attention.empty() && (!facts.attention || damage_found(*facts.attention) < found))
    remedies.push_back({.name = "scales of K chosen by what they do to attention",
                        .damage = facts.attention,
                        .bytes_per_token = facts.bytes_fp8,
                        .command = facts.by_attention + output});
  const bool helps = !facts.rewritten || damage_found(*facts.rewritten) < found;
  if (!facts.is_rewritten && helps && !reason_against_key_factors(facts.config))
    remedies.push_back({.name = "weights of the same function, rewritten for this cache",
                        .damage = facts.rewritten,
                        .bytes_per_token = facts.bytes_fp8,
                        .command = facts.calibrate + " --smooth" + output});
  if (const ScoredCache* cache = best_cache(facts, found))
    remedies.push_back({.name = "another cache, " + cache->label.name,
                        .damage = damage_of(cache->result),
                        .bytes_per_token = cache->label.bytes_per_token,
                        .command = line_of(*cache, facts)});
  if (std::optional<Remedy> layers = layers_in_16_bits(facts, output))
    remedies.push_back(std::move(*layers));
  remedies.push_back({.name = "16 bits for all layers",
                      .damage = CacheDamage{.num_tokens = kFewTokens},
                      .bytes_per_token = 2 * facts.bytes_fp8,
                      .command = serve_line(facts.model)});
  return remedies;
}

std::string attention_line(const CalibrateRequest& request, const std::string& model) {
  if (request.recipe != kDefaultRecipe || request.smooths) return {};  // which takes it by itself
  CalibrateRequest chosen = request;
  chosen.recipe = kAttentionRecipe;
  return calibrate_line(chosen, model);
}

bool is_rewritten(const CalibrationResult& result) {
  return smoothed_for(result.output.manifest) == SmoothedFor::kFp8E4m3;
}

RemedyFacts facts_of(const CalibrateRequest& request, const std::string& model,
                     const CalibrationResult& result) {
  return {.config = result.config,
          .model = model,
          .calibrate = calibrate_line(request, model),
          .output = request.output.output,
          .are_made = true,
          .is_rewritten = is_rewritten(result),
          .bytes_fp8 = result.summary ? result.summary->cache_bytes_fp8 : 0,
          .by_attention = attention_line(request, model)};
}

std::vector<Remedy> predicted_remedies(const CalibrateRequest& request, const std::string& model,
                                       const CalibrationResult& result) {
  if (!result.summary || !result.summary->predicted) return {};
  RemedyFacts facts = facts_of(request, model, result);
  facts.calibrated = result.summary->predicted;
  facts.unit = result.summary->predicted_unit;
  return remedies_of(facts);
}

std::vector<Remedy> keep_scored(const CalibrateRequest& request, const std::string& model,
                                const ScoredScales& measured, CalibrationResult& result) {
  RemedyFacts facts = facts_of(request, model, result);
  facts.calibrated = calibrated_damage(measured);
  facts.unit = unit_damage(measured);
  std::vector<Remedy> remedies = remedies_of(facts);
  auto lines = scored_lines(measured);
  for (auto& line : remedy_lines(remedies)) lines.push_back(std::move(line));
  add_accuracy(result.output.folders, lines);
  result.output.manifest["measured"] = to_json(measured);
  if (!remedies.empty()) result.output.manifest["remedies"] = to_json(remedies);
  const fs::path manifest = fs::path(request.output.output) / kManifestName;
  if (is_there(manifest)) write_file_atomically(manifest, dump_json(result.output.manifest), true);
  return remedies;
}

std::string unit_serve_line(const std::string& model) {
  return serve_line(model, engine_rules().at("vllm").fp8_argument);
}

std::string remedies_text(const std::vector<Remedy>& remedies) {
  if (remedies.empty()) return "";
  std::string text = "remedies:\n";
  for (const Remedy& remedy : remedies)
    text += "  " + remedy.name + ": " + cost_text(remedy) + "\n      " + remedy.command + "\n";
  return text;
}

Json to_json(const std::vector<Remedy>& remedies) {
  Json list = Json::array();
  for (const Remedy& remedy : remedies) {
    Json& json = list.emplace_back(Json{{"name", remedy.name}});
    if (const auto& damage = remedy.damage) {
      json["kl_mean"] = damage->kl_mean;
      json["predicted"] = damage->is_predicted;
      json["verdict"] = name_of(damage_found(*damage));
    }
    if (remedy.kl_limit) json["kl_limit"] = *remedy.kl_limit;
    if (remedy.bytes_per_token) json["bytes_per_token"] = *remedy.bytes_per_token;
    json["command"] = remedy.command;
  }
  return list;
}

LabelledLines remedy_lines(const std::vector<Remedy>& remedies) {
  LabelledLines lines;
  for (const Remedy& remedy : remedies)
    lines.emplace_back("remedy",
                       remedy.name + ": " + cost_text(remedy) + ": `" + remedy.command + "`");
  return lines;
}

}  // namespace kvcal
