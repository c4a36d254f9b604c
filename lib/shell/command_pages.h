#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shell/description.h"

namespace kvcal {

// All that is made of the description of the command line.

/// Columns that no line of a help page exceeds.
constexpr size_t kHelpColumns = 80;

/// The page of help that is of no command: variables of the environment, and exit statuses.
inline constexpr const char* kEnvironmentPage = "environment";

/// Help of the program, or of the command that `command` names: usage, purpose, arguments, options
/// by group and examples; or kEnvironmentPage. Throws Error for a command that is not known.
std::string help_page(const ProgramDescription& program, const std::string& command);
/// Usage, purpose and commands of the program, for a command line that has nothing else.
std::string short_help(const ProgramDescription& program);

/// The names of all man pages: "kvcal", "kvcal-eval", ...
std::vector<std::string> man_page_names(const ProgramDescription& program);
/// A page of section 1 in the man(7) language: of the program, or of the command that `command`
/// names. date: "2026-01-31", or empty for none. Throws Error for a command that is not known.
std::string man_page(const ProgramDescription& program, const std::string& command,
                     const std::string& date);
/// The day of a number of seconds since 1970, as SOURCE_DATE_EPOCH has it: two builds of one source
/// make the same page. Throws Error where the text is no such number.
std::string date_of_epoch(std::string_view seconds);

/// The shells that completion_script knows: bash, zsh, fish.
std::vector<std::string> completion_shells();
/// The script that a shell loads to complete the program's command line. Throws Error for a shell
/// that is not known.
std::string completion_script(const std::string& shell, const ProgramDescription& program);

/// The module of Python with a function for each command that has one, which calls
/// `call(NAME, arguments)`.
std::string python_module(const ProgramDescription& program);

}  // namespace kvcal
