#pragma once

#include <string>

#include "shell/description.h"

namespace kvcal {

/// Columns that no line of a help page exceeds.
constexpr size_t kHelpColumns = 80;

/// Help of the program, or of the command that `command` names: usage, purpose, arguments, options
/// by group, examples, environment and exit status. Throws Error for a command that is not known.
std::string help_page(const ProgramDescription& program, const std::string& command);

/// Usage, purpose and commands of the program, for a command line that has nothing else.
std::string short_help(const ProgramDescription& program);

}  // namespace kvcal
