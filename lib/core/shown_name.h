#pragma once

#include <string>
#include <string_view>

namespace kvcal {

/// An untrusted name, quoted for a message: shortened, and without terminal control characters.
inline std::string shown_name(std::string_view name) {
  constexpr size_t kMostBytes = 200;
  std::string text(name.substr(0, kMostBytes));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return "'" + text + (name.size() > kMostBytes ? "...'" : "'");
}

}  // namespace kvcal
