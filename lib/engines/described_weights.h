#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "family/model_config.h"

namespace kvcal {

/// What the config of a checkpoint says, and does not say, of its weights.
struct DescribedWeights {
  /// Names and dtypes of codes that run in no module which the config quantizes, "lm_head.weight
  /// (U8)"; none where kvcal does not read the config.
  std::vector<std::string> undescribed;
  /// What else keeps a model with codes from running (TensorAccount::problems).
  std::vector<std::string> problems;
  std::vector<std::string> warnings;  ///< of keys that are passed over, and of the index
  std::string unknown_key;            ///< that other commands stop at; empty: none
};

DescribedWeights read_described_weights(const ModelDir& model_dir, const ModelConfig& config);

}  // namespace kvcal
