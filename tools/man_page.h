#pragma once

#include <string>
#include <vector>

#include "command_facts.h"

namespace kvcal {

/// A page of section 1 in the man(7) language. date: "2026-01-31", or empty for none.
std::string man_page_of_program(const CommandFacts& program,
                                const std::vector<CommandFacts>& commands, const std::string& date);
std::string man_page_of_command(const CommandFacts& command, const std::string& date);

}  // namespace kvcal
