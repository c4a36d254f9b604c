#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engines/verify.h"

namespace kvcal {

/// The requested engines; for "all" those of the table. Throws Error, with the known names, for
/// another.
std::vector<std::string> engine_choice(const std::vector<std::string>& asked);

/// A report for each engine, in the order of engine_choice. Throws Error as verify_engine.
std::vector<VerifyReport> verify(const std::filesystem::path& checkpoint,
                                 const std::vector<std::string>& engines,
                                 const VerifyOptions& options);

}  // namespace kvcal
