#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvcal {

/// Origin of statistics and scales: the model, the text and the arithmetic of the run.
struct Provenance {
  std::string model_path, model_type, model_sha256;
  /// The family that ran the model where its model_type is not known, and the hash of the file that
  /// describes it; else empty.
  std::string family, family_sha256;
  std::string model_config;                  ///< text of config.json; only statistics have it
  std::string dataset_path, dataset_sha256;  ///< empty: no text was used
  /// Columns that its records were read from, as JSON ({"text_column": "review"}); empty: those
  /// that are recognized.
  std::string dataset_columns = {};
  std::vector<int64_t> sample_indices;  ///< in the data set, in the order of the run
  int64_t num_tokens = 0;
  int64_t longest_sample = 0;  ///< its tokens; 0: not known
  std::string compute_dtype, kv_forward;
  std::string inputs;  ///< "as-served" or "16bit"; empty: the checkpoint quantizes no inputs
  bool all_experts = false;
  std::string device;  ///< only in manifests that describe the machine
};

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
  std::optional<int64_t> channel = {};  ///< where scales are per channel
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
