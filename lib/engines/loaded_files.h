#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engines/engine_rules.h"

namespace kvcal {

/// The safetensors files of a folder, as an engine takes them.
struct LoadedFiles {
  std::vector<std::string> names;   ///< in the order in which it reads them
  std::vector<std::string> others;  ///< that it leaves out, sorted
  std::string refusal;              ///< why it loads none; empty: it does
};

/// Throws Error for a folder that cannot be listed, and for an index that kvcal cannot read.
LoadedFiles loaded_files(const std::filesystem::path& folder, const FileRules& rules);

}  // namespace kvcal
