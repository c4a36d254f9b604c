#include "core/shown_text.h"

#include <cstdint>
#include <cstdio>

#include "core/utf8.h"

namespace kvcal {
namespace {

/// Whether a terminal would not show the character but act on it.
bool acts(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

std::string escaped(const char* form, uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

std::string escape_of(char32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  return escaped(c < 0x20 ? "\\x%02x" : "\\u%04x", static_cast<uint32_t>(c));
}

std::string shown(std::string_view text, bool keeps_lines) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t size = utf8::well_formed_size(text, at);
    if (size == 0) {
      result += escaped("\\x%02x", static_cast<unsigned char>(text[at++]));
      continue;
    }
    const char32_t c = utf8::decode(text, at).code_point;
    const bool stays = keeps_lines && (c == '\n' || c == '\t');
    if (acts(c) && !stays)
      result += escape_of(c);
    else
      result.append(text, at, size);
    at += size;
  }
  return result;
}

}  // namespace

std::string shown_text(std::string_view text) {
  return shown(text, /*keeps_lines=*/false);
}

std::string shown_lines(std::string_view text) {
  return shown(text, /*keeps_lines=*/true);
}

std::string shown_message(std::string_view text) {
  std::string_view start = text.substr(0, kMostMessageBytes);
  if (start.size() < text.size()) start.remove_suffix(utf8::unfinished_size(start));
  std::string message = shown_lines(start);
  size_t cut = text.size() - start.size();
  if (message.size() > kMostMessageBytes) {
    cut += message.size() - kMostMessageBytes;
    message.resize(kMostMessageBytes);
    message.resize(message.size() - utf8::unfinished_size(message));
  }
  return cut == 0 ? message : message + " ... (" + std::to_string(cut) + " more bytes)";
}

}  // namespace kvcal
