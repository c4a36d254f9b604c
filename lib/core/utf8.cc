#include "core/utf8.h"

#include <algorithm>

namespace kvcal::utf8 {
namespace {

/// Length of the well-formed sequence at text[at], or 0; *bad is then the length of the maximal
/// ill-formed part.
size_t sequence_length(std::string_view text, size_t at, size_t* bad) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  *bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
  const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < size; ++i) {
    if (at + i >= text.size()) return 0;
    const unsigned char next = byte(at + i);
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xbf)) return 0;
    *bad = i + 1;
  }
  return size;
}

}  // namespace

size_t well_formed_size(std::string_view text, size_t at) {
  size_t bad = 0;
  return sequence_length(text, at, &bad);
}

size_t unfinished_size(std::string_view text) {
  size_t tail = 0;
  while (tail < text.size() && tail < 3 && is_tail(text[text.size() - 1 - tail])) ++tail;
  if (tail == text.size()) return 0;
  const auto lead = static_cast<unsigned char>(text[text.size() - 1 - tail]);
  const size_t size = lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
  return tail + 1 < size ? tail + 1 : 0;
}

Decoded decode_before(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && is_tail(text[start])) --start;
  return decode(text, start);
}

void append(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      put(0xe0 | (c >> 12));
    } else {
      put(0xf0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3f));
    }
    put(0x80 | ((c >> 6) & 0x3f));
  }
  put(0x80 | (c & 0x3f));
}

std::string encode(char32_t code_point) {
  std::string text;
  append(text, code_point);
  return text;
}

size_t length(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char byte) { return !is_tail(byte); }));
}

std::optional<size_t> find_invalid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = well_formed_size(text, at);
    if (size == 0) return at;
    at += size;
  }
  return std::nullopt;
}

std::string replace_invalid(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  size_t bad = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t size = sequence_length(text, at, &bad);
    if (size == 0) append(result, 0xfffd);
    result.append(text, at, size);
    at += size == 0 ? bad : size;
  }
  return result;
}

}  // namespace kvcal::utf8
