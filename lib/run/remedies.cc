#include "run/remedies.h"

#include <algorithm>

#include "core/file.h"
#include "core/folder.h"
#include "core/number_text.h"
#include "core/shell_word.h"
#include "engines/engine_rules.h"
#include "export/manifest.h"
#include "rewrite/kv_factors.h"
#include "run/output_card.h"
#include "stored/smoothed_for.h"

namespace kvcal {
namespace {

Damage damage_found(const CacheDamage& damage) {
  return judge(damage).damage;
}

/// The line that serves the model as it is, with these arguments.
std::string serve_line(const std::string& model, std::string_view arguments = {}) {
  return std::string(engine_rules().at("vllm").command) + " " + shell_word(model) +
         (arguments.empty() ? "" : " ") + std::string(arguments);
}

/// The line of a cache that vLLM makes of any checkpoint, by its name; empty: there is none.
std::string line_of(const MeasuredCache& cache, const RemedyFacts& facts) {
  const bool needs_scales = cache.label.scales_source == "calibrated";
  const std::string name(name_of(cache.label.type));
  const bool is_vllms = name.ends_with("_per_token_head") || name == "nvfp4" || name == "fp8_e5m2";
  return is_vllms && !needs_scales ? serve_line(facts.model, "--kv-cache-dtype " + name)
                                   : std::string();
}

/// The least KL of the caches that a line serves; nullptr where none is better than `worse`.
const MeasuredCache* best_cache(const RemedyFacts& facts, Damage worse) {
  if (!facts.caches) return nullptr;
  const MeasuredCache* best = nullptr;
  for (const MeasuredCache& cache : *facts.caches) {
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
  if (const MeasuredCache* cache = best_cache(facts, found))
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

namespace {

/// Of scales that a calibration has made.
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

}  // namespace

std::vector<Remedy> predicted_remedies(const CalibrateRequest& request, const std::string& model,
                                       const CalibrationResult& result) {
  if (!result.summary || !result.summary->predicted) return {};
  RemedyFacts facts = facts_of(request, model, result);
  facts.calibrated = result.summary->predicted;
  facts.unit = result.summary->predicted_unit;
  return remedies_of(facts);
}

std::vector<Remedy> keep_measured(const CalibrateRequest& request, const std::string& model,
                                  const MeasuredScales& measured, CalibrationResult& result) {
  RemedyFacts facts = facts_of(request, model, result);
  facts.calibrated = calibrated_damage(measured);
  facts.unit = unit_damage(measured);
  std::vector<Remedy> remedies = remedies_of(facts);
  auto lines = measured_lines(measured);
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

std::vector<std::pair<std::string, std::string>> remedy_lines(const std::vector<Remedy>& remedies) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Remedy& remedy : remedies)
    lines.emplace_back("remedy",
                       remedy.name + ": " + cost_text(remedy) + ": `" + remedy.command + "`");
  return lines;
}

}  // namespace kvcal
