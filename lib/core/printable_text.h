#pragma once

#include <string>
#include <string_view>

namespace kvcal {

/// text with control characters other than line ends as "\x1b". Messages quote files of strangers,
/// whose escape sequences must not reach a terminal.
std::string printable_text(std::string_view text);

}  // namespace kvcal
