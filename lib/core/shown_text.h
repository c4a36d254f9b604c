#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvcal {

/// Longest message, in bytes; what is longer is cut.
inline constexpr size_t kMostMessageBytes = 4096;

/// Text of a stranger as a terminal may show it, in one line. Control characters (C0, DEL, C1),
/// line separators and those that reorder text (Unicode's bidirectional formatting) are escaped as
/// in C++ and JSON, "\n" and "\u202e"; bytes that are no UTF-8 as "\x9b".
std::string shown_text(std::string_view text);

/// The same for text whose own tabs and ends of lines stay.
std::string shown_lines(std::string_view text);

/// shown_lines of at most kMostMessageBytes; says how many bytes were cut.
std::string shown_message(std::string_view text);

}  // namespace kvcal
