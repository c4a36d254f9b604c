#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "family/model_config.h"
#include "quant/damage_verdict.h"
#include "run/calibrate_request.h"
#include "run/calibration_result.h"
#include "run/eval_variants.h"

namespace kvcal {

/// Evaluation of the request's model on records of its data set behind the first num_used, or on
/// all where there are no others.
EvalOptions options_of_left(const CalibrateRequest& request, int64_t num_used);

struct ScoredCache {
  CacheLabel label;
  Likelihood result;
};

/// Scales of a calibration, and scale 1.0, measured against the same weights with a cache of 16
/// bits; where the recipe quantizes weights, against the source.
struct ScoredScales {
  size_t num_sequences = 0;
  bool is_held_out = false;  ///< no sequence was a sample of the calibration
  Likelihood calibrated, unit;
  double calibrated_clipped = 0, unit_clipped = 0;  ///< by the calibration's histograms
  PairedDifference gain = {};            ///< KL of scale 1.0 less KL of the scales, in nats a token
  std::vector<ScoredCache> caches = {};  ///< with every_cache: all, the smallest KL first
};

CacheDamage calibrated_damage(const ScoredScales& measured);
CacheDamage unit_damage(const ScoredScales& measured);

/// The better scales: a difference counts from two standard errors on.
enum class BetterScales { kTooFewTokens, kNoDifference, kCalibrated, kUnit };
BetterScales better_of(const ScoredScales& measured);

/// Runs the records of the data set that follow the calibration's samples, or the first ones where
/// none follow. result: of a calibration with an output. Throws Error.
ScoredScales score_scales(const CalibrateRequest& request, const CalibrationResult& result,
                          Diagnostics& diagnostics);

/// Another way to serve the model with the request's cache.
struct OtherCache {
  std::string model;   ///< with these weights
  std::string scales;  ///< a folder, or "unit"
};
/// Measures it on the same text, against the request's model with a cache of 16 bits.
Likelihood score_other(const CalibrateRequest& request, const CalibrationResult& result,
                       const OtherCache& other, Diagnostics& diagnostics);

/// The value of "measured" in a manifest.
Json to_json(const ScoredScales& measured);
/// Models that score_scales runs side by side, the reference included.
int num_models_scored(const ScoreOptions& options);
/// Pairs of a label and a text of one line, the verdicts first.
LabelledLines scored_lines(const ScoredScales& measured);

/// A table of measured caches, as whole lines for a terminal: bytes a token, mean KL in nats with
/// its standard error, change of perplexity, same top token.
std::string caches_text(const std::vector<ScoredCache>& caches);

/// Something to do instead of serving a cache that costs too much.
struct Remedy {
  std::string name;
  /// Its cost, measured or predicted; nullopt: to be measured.
  std::optional<CacheDamage> damage = {};
  /// The mean KL that it keeps to by construction; nullopt: none.
  std::optional<double> kl_limit = {};
  std::optional<uint64_t> bytes_per_token = {};  ///< nullopt: it depends on what is found
  std::string command = {};                      ///< the line to type; empty: none is needed
};

/// What remedies are chosen by.
struct RemedyFacts {
  const ModelConfig& config;
  std::string model;          ///< as given, for the lines to type
  std::string calibrate;      ///< the line that makes the scales, without --output
  std::string output;         ///< for what is to be made
  bool are_made = false;      ///< the calibrated scales are there, and need no line
  bool is_rewritten = false;  ///< the weights are for an E4M3 cache already
  std::optional<CacheDamage> calibrated = {};  ///< FP8 with calibrated scales, which is needed
  std::optional<CacheDamage> unit = {};        ///< FP8 with scale 1.0
  uint64_t bytes_fp8 = 0;                      ///< of one token
  const std::vector<ScoredCache>* caches = nullptr;  ///< of every type; nullptr: not measured
  /// Layers in 16 bits that were measured; nullptr: none were.
  const KlBudgetOutcome* proposed = nullptr;
  std::optional<CacheDamage> rewritten = {};  ///< scale 1.0 on rewritten weights, where measured
  /// The line that makes scales of K chosen by attention, without --output; empty: the scales are
  /// of another recipe than the default one.
  std::string by_attention = {};
  std::optional<CacheDamage> attention = {};  ///< with such scales, where measured
};

/// The request's line with scales of K chosen by attention (recipes/fp8_kv_attention_mse.yaml);
/// empty where it has another recipe than the default one, or rewrites the model.
std::string attention_line(const CalibrateRequest& request, const std::string& model);

/// Facts of scales that a calibration has made, without what they cost. model: its name for lines
/// to type.
RemedyFacts facts_of(const CalibrateRequest& request, const std::string& model,
                     const CalibrationResult& result);

/// Whether the result's weights were rewritten for an E4M3 cache, in this run or before it.
bool is_rewritten(const CalibrationResult& result);

/// The ways out, those that take no memory first; none where the better of both, or the scales that
/// are made, are fine. Each whose cost is known is better than what was found.
std::vector<Remedy> remedies_of(const RemedyFacts& facts);

/// The line that serves a model as it is, with an FP8 cache and scale 1.0.
std::string unit_serve_line(const std::string& model);

/// The ways out where the scales of a written calibration are predicted to cost too much; none
/// where nothing is predicted.
std::vector<Remedy> predicted_remedies(const CalibrateRequest& request, const std::string& model,
                                       const CalibrationResult& result);

/// Adds what was measured to manifest and cards of a written calibration, and returns the ways out,
/// where its scales cost too much. model: its name for lines to type.
std::vector<Remedy> keep_scored(const CalibrateRequest& request, const std::string& model,
                                const ScoredScales& measured, CalibrationResult& result);

/// A text of them with a heading, as whole lines for a terminal; empty for none.
std::string remedies_text(const std::vector<Remedy>& remedies);
/// The value of "remedies" in JSON.
Json to_json(const std::vector<Remedy>& remedies);
/// The same as labels and texts of one line, for a model's card.
LabelledLines remedy_lines(const std::vector<Remedy>& remedies);

}  // namespace kvcal
