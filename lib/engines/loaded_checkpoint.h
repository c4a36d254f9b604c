#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "engines/engine_rules.h"
#include "family/model_config.h"

namespace kvcal {

/// The safetensors files of a folder, as an engine takes them.
struct LoadedFiles {
  std::vector<std::string> names;   ///< in the order in which it reads them
  std::vector<std::string> others;  ///< that it leaves out, sorted
  std::string refusal;              ///< why it loads none; empty: it does
};

/// Throws Error for a folder that cannot be listed, and for an index that kvcal cannot read.
LoadedFiles loaded_files(const std::filesystem::path& folder, const FileRules& rules);

/// Whether torch has a dtype of that name, or it is "auto".
bool is_dtype_of_torch(std::string_view word);

/// The dtype in which an engine runs a checkpoint where its user chooses none: "float16",
/// "bfloat16", "float32" or "float64". config.dtype is config.json's, or empty; model_type is the
/// outer one.
std::string run_dtype(const RunDtype& rules, const ModelDir& model_dir, const ModelConfig& config,
                      std::string_view model_type);

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
