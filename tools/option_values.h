#pragma once

#include <string_view>

#include "shell/description.h"

namespace kvcal {

/// Adds to an option's description what its type does not say of its values: a file or a folder, or
/// the names that it takes where the command checks them itself. command: "eval"; option: "--task",
/// or an argument's name. An option that is not in the table keeps its kind.
void add_option_values(std::string_view command, std::string_view option,
                       OptionDescription& described);

}  // namespace kvcal
