#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shell/description.h"

namespace kvcal {

/// The names of all man pages: "kvcal", "kvcal-eval", ...
std::vector<std::string> man_page_names(const ProgramDescription& program);

/// A page of section 1 in the man(7) language: of the program, or of the command that `command`
/// names. date: "2026-01-31", or empty for none. Throws Error for a command that is not known.
std::string man_page(const ProgramDescription& program, const std::string& command,
                     const std::string& date);

/// The day of a number of seconds since 1970, as SOURCE_DATE_EPOCH has it: two builds of one source
/// make the same page. Throws Error where the text is no such number.
std::string date_of_epoch(std::string_view seconds);

}  // namespace kvcal
