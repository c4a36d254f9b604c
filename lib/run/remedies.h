#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "family/model_config.h"
#include "quant/damage_verdict.h"
#include "run/kl_budget_outcome.h"
#include "run/measured_scales.h"

namespace kvcal {

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
  const std::vector<MeasuredCache>* caches = nullptr;  ///< of every type; nullptr: not measured
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
std::vector<Remedy> keep_measured(const CalibrateRequest& request, const std::string& model,
                                  const MeasuredScales& measured, CalibrationResult& result);

/// A text of them with a heading, as whole lines for a terminal; empty for none.
std::string remedies_text(const std::vector<Remedy>& remedies);
/// The value of "remedies" in JSON.
Json to_json(const std::vector<Remedy>& remedies);
/// The same as labels and texts of one line, for a model's card.
std::vector<std::pair<std::string, std::string>> remedy_lines(const std::vector<Remedy>& remedies);

}  // namespace kvcal
