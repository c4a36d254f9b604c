#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "shell/description.h"

namespace kvcal {

/// The program and its commands as CLI11 has them, without hidden options. The kinds of values and
/// the names to choose from, which CLI11 does not know, come from a table beside it.
ProgramDescription description_of(const CLI::App& app);

/// Values on the command line that name what the command writes.
std::vector<std::string> written_paths(const CLI::App& command);

}  // namespace kvcal
