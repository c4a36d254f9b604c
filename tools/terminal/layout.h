#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvcal {

// How a line of text is laid out on a terminal: in rows that words part, and with colours.

/// The line, without its end, in rows of at most `columns`, parted at spaces. Later rows begin
/// below the line's second column of text, where that leaves half of the width. A word that is
/// longer than a row, and a line that is a command to type ("  $ vllm serve OUT"), stay whole: the
/// terminal parts them, and they can be copied.
std::string in_rows(std::string_view line, size_t columns);

/// The line with its first word in colour, where that is "error:", "warning:" or a verdict, and
/// the words of a verdict.
std::string coloured(std::string_view line);

}  // namespace kvcal
