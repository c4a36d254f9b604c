#pragma once

#include <string>
#include <string_view>

#include "core/shown_text.h"
#include "core/utf8.h"

namespace kvcal {

/// An untrusted name, quoted for a message: shortened, and as shown_text has it.
inline std::string shown_name(std::string_view name) {
  constexpr size_t kMostBytes = 200;
  const std::string_view start = name.substr(0, kMostBytes);
  const std::string text = shown_text(start.substr(0, start.size() - utf8::unfinished_size(start)));
  return "'" + text + (name.size() > kMostBytes ? "...'" : "'");
}

}  // namespace kvcal
