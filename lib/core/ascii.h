#pragma once

#include <string>
#include <string_view>

namespace kvcal {

/// text with a to z for A to Z; bytes beyond ASCII stay.
inline std::string ascii_lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

/// text without blanks and line breaks at both ends.
inline std::string_view ascii_trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

}  // namespace kvcal
