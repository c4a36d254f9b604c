#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvcal {

/// Condition under which a calibration may end before its last sample.
struct StopRule {
  double ratio = 0.0;   ///< largest allowed move of any scale, relative to its old value
  int64_t window = 64;  ///< over this many samples
};

/// Move of one scale.
struct ScaleMove {
  std::string module;                ///< "model.layers.3.self_attn"
  int64_t layer = 0;                 ///< -1: of none (lm_head)
  std::string scale;                 ///< "k_scale", "v_scale", "q_scale" or "input_scale"
  std::optional<int64_t> head = {};  ///< where scales are per head
  int64_t num_samples = 0;           ///< between the two values
  /// |after - before| / before; nullopt: one of the two is missing.
  std::optional<double> ratio = {};
};

/// Outcome of a calibration with a StopRule.
struct StopOutcome {
  StopRule rule;
  int64_t num_samples = 0;  ///< used for the scales
  int64_t max_samples = 0;  ///< available
  bool is_stable = false;
  /// At the end; nullopt: fewer samples than two windows, so there was no comparison.
  std::optional<ScaleMove> largest_move = {};
};

}  // namespace kvcal
