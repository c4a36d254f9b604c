#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvcal {

/// When a calibration may end before its samples do.
struct StopRule {
  double ratio = 0.0;   ///< the most that any scale may move, as a fraction of what it was
  int64_t window = 64;  ///< over so many samples
};

/// By how much one scale moved.
struct ScaleMove {
  std::string module;                ///< "model.layers.3.self_attn"
  int64_t layer = 0;                 ///< -1: of none (lm_head)
  std::string scale;                 ///< "k_scale", "v_scale", "q_scale" or "input_scale"
  std::optional<int64_t> head = {};  ///< where scales are per head
  int64_t num_samples = 0;           ///< that lie between the two values
  /// |after - before| / before; nullopt: there was none before, or is none yet.
  std::optional<double> ratio = {};
};

/// How a calibration with a StopRule ended.
struct StopOutcome {
  StopRule rule;
  int64_t num_samples = 0;  ///< that the scales are of
  int64_t max_samples = 0;  ///< that it could have used
  bool is_stable = false;
  /// At the end; nullopt: the samples are fewer than two windows, so nothing could be compared.
  std::optional<ScaleMove> largest_move = {};
};

}  // namespace kvcal
