#pragma once

#include <string>

namespace kvcal {

/// text with a to z for A to Z; bytes beyond ASCII stay.
inline std::string ascii_lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace kvcal
