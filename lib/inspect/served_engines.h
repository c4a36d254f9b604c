#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "family/model_config.h"

namespace kvcal {

/// Whether an engine uses the KV scales of a folder.
struct ServedEngine {
  std::string title;  ///< "vLLM 0.32"
  bool is_served = false;
  std::string note;  ///< the platform and argument that it needs, or why it uses no scale
};

/// All engines, in the order of their rules.
std::vector<ServedEngine> served_engines(const std::filesystem::path& folder,
                                         const ModelConfig& config);

}  // namespace kvcal
