#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "calib/summary/scale_summary.h"
#include "core/json.h"
#include "eval/mixed_precision.h"
#include "family/model_config.h"
#include "quant/calibration.h"
#include "quant/provenance.h"
#include "run/command_output.h"
#include "run/rank_settings.h"

namespace kvcal {

/// What a search for layers in 16 bits found.
struct KlBudgetOutcome {
  double kl_budget = 0;  ///< nats a token
  size_t num_sequences = 0;
  bool is_held_out = false;                         ///< no sequence was a sample of the calibration
  std::optional<std::vector<int64_t>> layers = {};  ///< in 16 bits, ascending; nullopt: none found
  Likelihood result = {};                           ///< with these
  /// All that was measured with the scales of a calibration that has every layer in FP8, by the
  /// number of layers in 16 bits.
  std::vector<MixedCache> measured = {};
};

/// "0.0066 ± 0.0004 with layer 0 in 16 bits, 0.229 ± 0.032 with none; the budget is 0.02 (..)"
std::string budget_text(const KlBudgetOutcome& outcome);
/// The value of "kl_budget" in a manifest (docs/formats.md).
Json to_json(const KlBudgetOutcome& outcome);

/// Data and expense of a run.
struct RunCost {
  size_t num_samples = 0;
  uint64_t num_tokens = 0;
  double seconds = 0;                        ///< from the start to the written output
  uint64_t peak_bytes = 0;                   ///< of memory, of this process
  std::string device = {};                   ///< of a GPU, with the kernels that ran there
  std::vector<ProductChoice> products = {};  ///< of its matrix library
  std::vector<PartTime> parts = {};          ///< of its time, with CalibrateRequest::times_parts
};

/// Scales of a recipe for a model, from a run or from its statistics.
struct CalibrationResult {
  ModelConfig config;
  bool by_attention = false;  ///< scales of K are chosen so, as its Recipe says
  Calibration calibration = {};
  WrittenOutput output = {};
  std::optional<ScaleSummary> summary = {};    ///< nullopt: no scales of K and V
  std::optional<RunCost> cost = {};            ///< nullopt: nothing was run
  std::optional<StopOutcome> stop = {};        ///< only with stable_ratio
  std::optional<KlBudgetOutcome> budget = {};  ///< only with a KL budget
  std::vector<RankShare> shares = {};          ///< of several ranks; empty: one process ran alone
};

/// Lines that say how good the scales are and what they cost, or, if `answers` is false, those that
/// say more: pairs of a label and a text of one line. Empty where no cache was calibrated.
LabelledLines made_lines(const CalibrationResult& result, bool answers);

/// The same, and what the cache is predicted to cost, where that is known, in front of the answers.
LabelledLines closing_lines(const CalibrationResult& result, bool answers);

/// What its output says of itself. Borrows the result.
OutputTexts output_texts(const CalibrationResult& result,
                         std::function<Json(const WrittenCheckpoint&)> manifest);

// A calibration in words and tables, as lines for a terminal. Each text is whole lines.

/// The answers of closing_lines, and the ranges and numbers of what was made. is_whole: the other
/// lines, too, and tables of the attention modules and of the inputs of Linears.
std::string calibration_text(const CalibrationResult& result, bool is_whole);

/// What lets other text exceed the scales: few tokens, or values that still grew. A sentence each.
std::vector<std::string> warnings_of(const ScaleSummary& summary, int64_t num_tokens);
/// "summary" of the manifest: to_json of the summary, with "warnings".
Json summary_json(const ScaleSummary& summary, int64_t num_tokens);

/// The reason for which a run ended before its last sample; empty where scales were not stable,
/// which is a warning of the run.
std::string stop_text(const StopOutcome& stop);

/// A table of the work of each rank.
std::string shares_text(const std::vector<RankShare>& shares);

/// Pairs of a label and a text, a line each.
std::string labelled_text(const LabelledLines& lines);

}  // namespace kvcal
