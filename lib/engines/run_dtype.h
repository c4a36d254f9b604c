#pragma once

#include <string>
#include <string_view>

#include "checkpoint/model_dir.h"
#include "engines/engine_rules.h"
#include "family/model_config.h"

namespace kvcal {

/// Whether torch has a dtype of that name, or it is "auto".
bool is_dtype_of_torch(std::string_view word);

/// The dtype in which an engine runs a checkpoint where its user chooses none: "float16",
/// "bfloat16", "float32" or "float64". config.dtype is config.json's, or empty; model_type is the
/// outer one.
std::string run_dtype(const RunDtype& rules, const ModelDir& model_dir, const ModelConfig& config,
                      std::string_view model_type);

}  // namespace kvcal
