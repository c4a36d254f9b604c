#include "run/measured_scales.h"

#include <algorithm>
#include <cmath>

#include "core/number_text.h"
#include "datasets/named_dataset.h"
#include "export/joined_writer.h"
#include "run/every_cache.h"
#include "run/sequence_scores.h"

namespace kvcal {
namespace {

constexpr const char* kCalibrated = "calibrated";
constexpr const char* kUnit = "unit";

/// Samples to pass over so that others are measured; 0: there are no others.
int64_t num_used(const CalibrateRequest& request, const CalibrationResult& result) {
  if (!result.cost) return 0;
  const auto dataset = open_dataset(request.dataset, {.records = request.records});
  const auto used = static_cast<int64_t>(result.cost->num_samples);
  return used < dataset->size() ? used : 0;
}

/// The written scales on the source's weights, or on the output's where these are others.
EvalOptions eval_options(const CalibrateRequest& request, const CalibrationResult& result,
                         const MeasureOptions& options) {
  const WrittenFolder& folder = result.output.folders.at(0);
  const bool makes_weights = request.smooths || result.calibration.plan.quantizes_weights();
  const bool has_own_weights =
      makes_weights && any_has(folder.format, &OutputFormat::is_checkpoint) && !folder.is_overlay;
  EvalOptions eval;
  eval.model = has_own_weights ? folder.path.string() : request.model;
  if (has_own_weights) eval.reference = request.model;
  eval.dataset = request.dataset;
  eval.family = request.family;
  eval.device = request.device;
  const std::string dtype = request.output.kv_cache_dtype;
  eval.variants = {std::string(kCalibrated) + "=" + dtype +
                       (has_own_weights ? ":checkpoint" : ":" + folder.path.string()),
                   std::string(kUnit) + "=" + dtype + ":unit"};
  eval.sequences = {.num_sequences = options.num_sequences,
                    .max_seq_length = options.max_seq_length,
                    .num_skipped = num_used(request, result),
                    .shuffle_seed = request.samples.shuffle_seed,
                    .records = request.records};
  return eval;
}

/// The caches that are measured beside calibrated scales and scale 1.0 of FP8.
std::vector<VariantSpec> other_caches(const CalibrationResult& result) {
  // Scales of another format than E4M3FN are for that cache alone.
  CalibratedScales calibrated;
  if (result.calibration.kv_format == fp8::Format::kE4m3Fn)
    calibrated = calibrated_scales_of(result.calibration);
  std::vector<VariantSpec> specs = every_cache(result.config, calibrated);
  std::erase_if(specs, [](const VariantSpec& spec) {
    return spec.name == "fp8, 1.0" || spec.name == "fp8, by layer";
  });
  return specs;
}

std::vector<MeasuredCache> measured_caches(const EvalVariants& variants,
                                           const std::vector<SequenceScores>& scores) {
  std::vector<MeasuredCache> caches;
  for (size_t i = 0; i < variants.variants().size(); ++i)
    caches.push_back({variants.variants()[i].label, summarize(scores, i)});
  caches[0].label.name = std::string(name_of(caches[0].label.type)) + ", these scales";
  caches[1].label.name = std::string(name_of(caches[1].label.type)) + ", 1.0";
  for (MeasuredCache& cache : caches)
    if (cache.label.scales_source != "unit" && cache.label.scales_source != "dynamic")
      cache.label.scales_source = kCalibrated;
  std::ranges::stable_sort(caches, {},
                           [](const MeasuredCache& cache) { return cache.result.kl_mean.value(); });
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

std::string gain_text(const MeasuredScales& measured) {
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
      return "1.0 is better by " + with_error(-gain.mean, gain.standard_error);
  }
  return "";
}

}  // namespace

CacheDamage calibrated_damage(const MeasuredScales& measured) {
  return damage_of(measured.calibrated, measured.calibrated_clipped);
}

CacheDamage unit_damage(const MeasuredScales& measured) {
  return damage_of(measured.unit, measured.unit_clipped);
}

BetterScales better_of(const MeasuredScales& measured) {
  if (measured.calibrated.num_tokens < kFewTokens) return BetterScales::kTooFewTokens;
  const PairedDifference& gain = measured.gain;
  if (std::fabs(gain.mean) <= 2 * gain.standard_error) return BetterScales::kNoDifference;
  return gain.mean > 0 ? BetterScales::kCalibrated : BetterScales::kUnit;
}

MeasuredScales measure_scales(const CalibrateRequest& request, const CalibrationResult& result,
                              const MeasureOptions& options, Diagnostics& diagnostics) {
  CalibrateRequest settled = request;
  if (settled.dataset.empty()) settled.dataset = kDefaultDataset;  // as the calibration did
  EvalOptions eval = eval_options(settled, result, options);
  if (options.every_cache) eval.more_variants = other_caches(result);
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
          .caches = options.every_cache ? measured_caches(variants, scores)
                                        : std::vector<MeasuredCache>()};
}

Likelihood measure_other(const CalibrateRequest& request, const CalibrationResult& result,
                         const MeasureOptions& options, const OtherCache& other,
                         Diagnostics& diagnostics) {
  EvalOptions eval = eval_options(request, result, options);
  eval.model = other.model;
  if (other.model != request.model) eval.reference = request.model;
  eval.variants = {"other=" + request.output.kv_cache_dtype + ":" + other.scales};
  EvalVariants variants(eval, true, diagnostics);
  const std::vector<ScoredSequence> sequences =
      read_left_sequences(eval, variants.model(), diagnostics);
  Scorer scorer = variants.make_scorer();
  return summarize(score_all(scorer, sequences, diagnostics), 0);
}

int num_models_measured(const MeasureOptions& options) {
  constexpr int kFp8Alone = 3;  // 16 bits, calibrated scales, scale 1.0
  constexpr int kMore = 4;      // FP8 by head, E5M2, two caches of NVFP4
  const auto formats = static_cast<int>(std::size(kCacheFormats)) - 1;
  return kFp8Alone + (options.every_cache ? kMore + formats : 0);
}

Json to_json(const MeasuredScales& measured) {
  Json caches = Json::array();
  for (const MeasuredCache& cache : measured.caches) {
    Json& entry = caches.emplace_back(Json{{"name", cache.label.name},
                                           {"kv_cache_dtype", name_of(cache.label.type)},
                                           {"scales", cache.label.scales_source},
                                           {"bytes_per_token", cache.label.bytes_per_token}});
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

std::vector<std::pair<std::string, std::string>> measured_lines(const MeasuredScales& measured) {
  const Likelihood &own = measured.calibrated, &unit = measured.unit;
  return {{"verdict", "with these scales " + verdict_text(calibrated_damage(measured))},
          {"verdict 1.0", "with scale 1.0 " + verdict_text(unit_damage(measured))},
          {"difference", gain_text(measured)},
          {"measured", std::to_string(measured.num_sequences) +
                           (measured.num_sequences == 1 ? " sequence, " : " sequences, ") +
                           std::to_string(own.num_tokens) + " tokens" +
                           (measured.is_held_out ? " that the calibration did not see" : "")},
          {"KL", with_error(*own.kl_mean, *own.kl_stderr) + " with these scales, " +
                     with_error(*unit.kl_mean, *unit.kl_stderr) +
                     " with 1.0 (nats a token, against " + "16 bits)"},
          {"perplexity", fixed("%.4f", *own.reference_perplexity) + " in 16 bits, " +
                             increase_text(own) + " with these scales, " + increase_text(unit) +
                             " with 1.0"}};
}

}  // namespace kvcal
