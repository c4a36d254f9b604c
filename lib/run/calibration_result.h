#pragma once

#include <optional>
#include <vector>

#include "family/model_config.h"
#include "quant/calibration.h"
#include "quant/stop_rule.h"
#include "run/output_formats.h"
#include "run/rank_settings.h"

namespace kvcal {

/// Scales of a recipe for a model, from a run or from its statistics.
struct CalibrationResult {
  ModelConfig config;
  Calibration calibration = {};
  WrittenOutput output = {};
  std::optional<StopOutcome> stop = {};  ///< only with stable_ratio
  std::vector<RankShare> shares = {};    ///< of several ranks; empty: one process ran alone
};

}  // namespace kvcal
