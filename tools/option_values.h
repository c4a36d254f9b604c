#pragma once

#include <string_view>

#include "command_facts.h"

namespace kvcal {

/// What is known of an option's value that its type does not tell: a file or a folder, or the names
/// that it takes where the command checks them itself. command: "eval"; option: "--task", or an
/// argument's name. An option that is not in the table keeps its kind.
void add_value_facts(std::string_view command, std::string_view option, OptionFacts& facts);

}  // namespace kvcal
