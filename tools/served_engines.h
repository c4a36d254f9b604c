#pragma once

#include <filesystem>

#include "family/model_config.h"

namespace kvcal {

/// "serves vLLM 0.32 ..." a line for each engine that uses the scales of a folder, with what it
/// must be told; then in one line those that do not.
void print_served_engines(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace kvcal
