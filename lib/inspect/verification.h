#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engines/verify.h"
#include "family/model_config.h"

namespace kvcal {

/// The engines asked for; the table's for "all". Throws Error for an unknown name, with the known.
std::vector<std::string> engine_choice(const std::vector<std::string>& asked);

/// A report for each engine, in the order of engine_choice. Throws Error as verify_engine.
std::vector<VerifyReport> verify(const std::filesystem::path& checkpoint,
                                 const std::vector<std::string>& engines,
                                 const VerifyOptions& options);

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
