#include "run/trial.h"
#include <algorithm>

#include "core/folder.h"
#include "core/text.h"
#include "recipe/recipe.h"
#include "rewrite/kv_factors.h"
#include "run/calibration_result.h"
#include "run/command_paths.h"
#include "run/kl_budget.h"
#include "run/smooth_checkpoint.h"
#include "stored/quantization_config.h"

namespace kvcal {
namespace {

constexpr size_t kWorstNamed = 3;

/// Whether the recipe makes weights, which no overlay holds. Throws Error for one without a cache.
bool makes_weights(const CalibrateRequest& request) {
  const Recipe recipe = read_recipe(request.recipe);
  if (std::ranges::none_of(recipe.modifiers, [](const Modifier& modifier) {
        return modifier.kv_cache_scheme.has_value();
      }))
    fail("--recipe ", request.recipe, " quantizes no K and V, expected one with a kv_cache_scheme");
  return std::ranges::any_of(recipe.modifiers, [](const Modifier& modifier) {
    return std::ranges::any_of(modifier.config_groups,
                               [](const auto& group) { return group.second.weights.has_value(); });
  });
}

/// A word for JSON and a sentence, by TrialAdvice.
constexpr struct {
  const char *word, *text;
} kAdvices[] = {
    {"scale 1.0", "no scales are needed: an FP8 cache with scale 1.0 serves this model"},
    {"calibrate", "serve calibrated scales: "},
    {"weigh", "an FP8 cache costs this model noticeably, with either scales: weigh the remedies"},
    {"do not serve",
     "do not serve this model with an FP8 cache of these scales or of 1.0: take a remedy"},
    {"other data", "1.0 was better: calibrate with --dataset of your own text, and more samples"},
    {"more tokens",
     "fine so far, but measure more text before you serve: --dataset, --measure-sequences"}};

std::string advice_text(const TrialFindings& found) {
  const TrialAdvice advice = advice_of(found);
  const std::string text = kAdvices[static_cast<size_t>(advice)].text;
  if (advice != TrialAdvice::kCalibrate) return text;
  if (found.better == BetterScales::kCalibrated)
    return text + "they are measurably better than 1.0";
  return text + (found.unit_clips ? "1.0 would clip, if not in these texts' predictions"
                                  : "they are fine, 1.0 is not");
}

/// The trial's calibration as it was settled.
CalibrateRequest settled_request(const CalibrateRequest& request, const CalibrationResult& found) {
  CalibrateRequest settled = request;
  settled.kl_budget.reset();
  settled.num_held_out = 0;
  if (found.cost)
    settled.samples.num_calibration_samples = static_cast<int64_t>(found.cost->num_samples);
  return settled;
}

/// Rewrites the model in a folder for temporary files and measures scale 1.0 on it; nullopt: it
/// cannot be rewritten, gains nothing by it, or the folder has no room.
std::optional<Likelihood> try_rewriting(const CalibrateRequest& request,
                                        const CalibrationResult& found, Diagnostics& diagnostics) {
  const CalibrateRequest settled = settled_request(request, found);
  const ModelDir model(settled.model);
  const bool is_for_e4m3 = found.calibration.kv_format == fp8::Format::kE4m3Fn;
  if (!is_for_e4m3 || is_rewritten(found) || read_quantization_config(model).format ||
      reason_against_key_factors(found.config))
    return std::nullopt;
  const uint64_t needed = tensor_bytes(model);
  const fs::path folder = temporary_folder();
  if (const auto free = free_bytes_at(folder); free && *free < needed + needed / 16) {
    diagnostics.note("rewritten weights are not tried: " + folder.string() + " has no room for " +
                     byte_text(needed));
    return std::nullopt;
  }
  const AtomicDirectory scratch(temporary_path("rewritten"), false);
  SmoothRequest smooth = smooth_request(settled);
  smooth.output = (scratch.path() / "model").string();
  diagnostics.inform("trying weights that are rewritten for this cache");
  if (!smooth_checkpoint(smooth, diagnostics).is_changed()) return std::nullopt;
  return score_other(settled, found, {.model = smooth.output, .scales = "unit"}, diagnostics);
}

/// Measures scales of K that are chosen by attention; nullopt: the recipe is not the default one.
std::optional<Likelihood> try_attention_scales(const CalibrateRequest& request,
                                               const CalibrationResult& found, RankSession& session,
                                               Diagnostics& diagnostics) {
  CalibrateRequest settled = settled_request(request, found);
  if (settled.recipe != kDefaultRecipe) return std::nullopt;
  const AtomicDirectory scratch(temporary_path("attention"), false);
  settled.recipe = kAttentionRecipe;
  OutputOptions output;
  output.output = (scratch.path() / "scales").string();
  output.scales_only = true;
  output.kv_cache_dtype = settled.output.kv_cache_dtype;
  settled.output = output;
  settled.state.folder = "none";
  diagnostics.inform("trying scales of K that are chosen by attention");
  SilentDiagnostics silent;  // what was said of the model already
  calibrate_checkpoint(settled, session, silent, {.written = [](const CalibrationResult&) {}});
  return score_other(settled, found, {.model = settled.model, .scales = settled.output.output},
                     diagnostics);
}

/// "with these scales fine: KL ..".
std::string tried_text(const std::string& what, const Likelihood& result) {
  return "with " + what + " " + verdict_text(damage_of(result));
}

Json tried_json(const Likelihood& result) {
  const CacheDamage damage = damage_of(result);
  Json json = {{"kl_mean", damage.kl_mean},
               {"kl_stderr", damage.kl_stderr},
               {"perplexity_increase", damage.perplexity_increase.value()}};
  add_verdict(damage, json);
  return json;
}

std::string context_text(uint64_t bytes) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  return "twice as long in the same memory: 1 GiB holds " + counted(kGiB / bytes, "token") +
         ", in 16 bits " + std::to_string(kGiB / (2 * bytes));
}

}  // namespace

TrialFindings findings_of(const Trial& trial) {
  return {.unit = judge(unit_damage(trial.measured)),
          .calibrated = judge(calibrated_damage(trial.measured)),
          .better = better_of(trial.measured),
          .unit_clips = trial.result.summary && trial.result.summary->unit == UnitScale::kClips};
}

TrialAdvice advice_of(const TrialFindings& found) {
  const auto& [unit, calibrated, better, unit_clips] = found;
  const Damage best = std::min(unit.damage, calibrated.damage);
  if (best == Damage::kDoNotServe) return TrialAdvice::kDoNotServe;
  if (best == Damage::kNoticeable) return TrialAdvice::kWeigh;
  const bool unit_serves = unit.damage == Damage::kFine && !unit_clips;
  const bool calibrated_serves = calibrated.damage == Damage::kFine;
  if (unit_serves && !(calibrated_serves && better == BetterScales::kCalibrated))
    return unit.needs_more_text ? TrialAdvice::kMoreTokens : TrialAdvice::kUnit;
  if (calibrated_serves && better != BetterScales::kUnit)
    return calibrated.needs_more_text ? TrialAdvice::kMoreTokens : TrialAdvice::kCalibrate;
  return TrialAdvice::kOtherData;
}

std::vector<Remedy> remedies_of(const Trial& trial, const CalibrateRequest& request,
                                const std::string& model, const std::string& output) {
  const auto damage_of_tried = [](const std::optional<Likelihood>& result) {
    return result ? std::optional(damage_of(*result)) : std::nullopt;
  };
  RemedyFacts facts = facts_of(request, model, trial.result);
  facts.output = output;
  facts.are_made = false;
  facts.calibrated = calibrated_damage(trial.measured);
  facts.unit = unit_damage(trial.measured);
  facts.caches = &trial.measured.caches;
  facts.proposed = trial.budget ? &*trial.budget : nullptr;
  facts.rewritten = damage_of_tried(trial.rewritten);
  facts.attention = damage_of_tried(trial.attention);
  return remedies_of(facts);
}

CalibrateRequest trial_request() {
  CalibrateRequest request;
  request.samples.num_calibration_samples = 64;
  request.score.every_cache = true;
  return request;
}

void try_model(CalibrateRequest request, RankSession& session, Diagnostics& diagnostics,
               const TrialSteps& steps) {
  request.num_held_out = request.score.num_sequences;
  request.is_measured = true;
  const bool has_weights = makes_weights(request);
  // Without commit() the folder goes with the trial.
  std::optional<AtomicDirectory> scratch;
  if (request.output.output.empty()) {
    scratch.emplace(temporary_path("try"), false);
    request.output.output = (scratch->path() / "scales").string();
    request.output.scales_only = !has_weights;
    request.state.folder = "none";
  }
  SilentDiagnostics silent;  // the calibration says it all again
  const int num_scored = num_models_scored(request.score) + (request.kl_budget ? kBudgetModels : 0);
  steps.estimated(preview_calibration(request, num_scored, silent));
  std::optional<Trial> trial;
  CalibrateRequest budgeted = request;
  request.kl_budget.reset();  // the trial proposes, and changes nothing
  calibrate_checkpoint(request, session, diagnostics,
                       {.written = [&](const CalibrationResult& result) {
                         trial.emplace(Trial{result, {}});
                       }});
  if (!trial || !trial->result.summary)
    fail(request.model, ": has no K and V that the recipe quantizes");
  trial->measured = score_scales(request, trial->result, diagnostics);
  // Weights that the recipe quantizes are no reference for a cache alone.
  const TrialFindings found = findings_of(*trial);
  const bool is_fine =
      found.calibrated.damage == Damage::kFine || found.unit.damage == Damage::kFine;
  const bool tries_remedies = !has_weights && !is_fine;
  if (!budgeted.kl_budget && tries_remedies) budgeted.kl_budget = kFineLimits.kl_mean;
  if (budgeted.kl_budget) trial->budget = propose_layers(budgeted, trial->result, diagnostics);
  if (tries_remedies) {
    trial->attention = try_attention_scales(request, trial->result, session, diagnostics);
    trial->rewritten = try_rewriting(request, trial->result, diagnostics);
  }
  steps.done(*trial);
}

Json to_json(const Trial& trial) {
  const ScaleSummary& summary = *trial.result.summary;
  Json worst = Json::array();
  for (const LayerErrors* layer : worst_layers(summary, kWorstNamed)) worst.push_back(layer->layer);
  Json json = {{"advice", kAdvices[static_cast<size_t>(advice_of(findings_of(trial)))].word},
               {"measured", to_json(trial.measured)},
               {"summary", to_json(summary)},
               {"worst_layers", std::move(worst)},
               {"cache_bytes_per_token",
                {{summary.format.is_int8() ? "int8" : "fp8", summary.cache_bytes_fp8},
                 {"16-bit", 2 * summary.cache_bytes_fp8}}}};
  if (trial.budget) json["kl_budget"] = to_json(*trial.budget);
  if (trial.attention) json["attention_scales"] = tried_json(*trial.attention);
  if (trial.rewritten) json["rewritten"] = tried_json(*trial.rewritten);
  if (const auto& cost = trial.result.cost)
    json["calibration"] = {{"num_samples", cost->num_samples},
                           {"num_tokens", cost->num_tokens},
                           {"seconds", cost->seconds},
                           {"peak_memory_bytes", cost->peak_bytes}};
  return json;
}

LabelledLines trial_lines(const Trial& trial, bool is_whole) {
  LabelledLines lines{{"advice", advice_text(findings_of(trial))}};
  const auto add = [&](const LabelledLines& more) {
    lines.insert(lines.end(), more.begin(), more.end());
  };
  add(scored_lines(trial.measured));
  add(made_lines(trial.result, /*answers=*/true));
  if (trial.budget) lines.emplace_back("KL budget", budget_text(*trial.budget));
  if (trial.attention)
    lines.emplace_back("attention",
                       tried_text("scales of K chosen by what they do to it", *trial.attention));
  if (trial.rewritten)
    lines.emplace_back("rewritten", tried_text("scale 1.0 on weights that are rewritten for it",
                                               *trial.rewritten));
  if (is_rewritten(trial.result))
    lines.emplace_back(
        "rewritten",
        "for fp8_e4m3 with one scale a layer or head; E5M2 and dynamic caches may lose far "
        "more than with the model that this was made of");
  if (!is_whole) return lines;
  add(made_lines(trial.result, /*answers=*/false));
  lines.emplace_back("context", context_text(trial.result.summary->cache_bytes_fp8));
  return lines;
}

}  // namespace kvcal
