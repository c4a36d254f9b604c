#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engines/verify.h"

namespace kvcal {

/// The engines asked for; the table's for "all". Throws Error for an unknown name, with the known.
std::vector<std::string> engine_choice(const std::vector<std::string>& asked);

/// A report for each engine, in the order of engine_choice. Throws Error as verify_engine.
std::vector<VerifyReport> verify(const std::filesystem::path& checkpoint,
                                 const std::vector<std::string>& engines,
                                 const VerifyOptions& options);

}  // namespace kvcal
