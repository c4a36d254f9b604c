#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "calib/scale_summary.h"
#include "family/model_config.h"
#include "quant/calibration.h"
#include "quant/stop_rule.h"
#include "run/kl_budget_outcome.h"
#include "run/output_formats.h"
#include "run/rank_settings.h"

namespace kvcal {

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

}  // namespace kvcal
