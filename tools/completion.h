#pragma once

#include <string>
#include <vector>

#include "command_facts.h"

namespace kvcal {

/// The script that a shell loads to complete the program's command line. program: its own options.
std::string bash_completion(const CommandFacts& program, const std::vector<CommandFacts>& commands);
std::string zsh_completion(const CommandFacts& program, const std::vector<CommandFacts>& commands);
std::string fish_completion(const CommandFacts& program, const std::vector<CommandFacts>& commands);

/// words with sep between them.
std::string joined(const std::vector<std::string>& words, const std::string& sep);
/// text with every character of `special` behind `escape`.
std::string escaped(const std::string& text, const std::string& special, const std::string& escape);

}  // namespace kvcal
