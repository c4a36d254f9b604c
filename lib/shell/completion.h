#pragma once

#include <string>
#include <vector>

#include "shell/description.h"

namespace kvcal {

/// The shells that completion_script knows: bash, zsh, fish.
std::vector<std::string> completion_shells();
/// The script that a shell loads to complete the program's command line. Throws Error for a shell
/// that is not known.
std::string completion_script(const std::string& shell, const ProgramDescription& program);

std::string bash_completion(const ProgramDescription& program);
std::string zsh_completion(const ProgramDescription& program);
std::string fish_completion(const ProgramDescription& program);

/// text with `escape` before every character of `special`.
std::string escaped(const std::string& text, const std::string& special, const std::string& escape);

}  // namespace kvcal
