#include "core/printable_text.h"

#include <cstdio>

namespace kvcal {

std::string printable_text(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n' || (code >= 0x20 && code != 0x7f)) {
      shown += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", code);
      shown += escaped;
    }
  }
  return shown;
}

}  // namespace kvcal
