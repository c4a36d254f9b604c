#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// UTF-8: decoding, and handling of ill-formed text. Well formed as in RFC 3629: no surrogates, no
/// overlong forms, nothing above U+10FFFF.
namespace kvcal::utf8 {

/// A code point and its number of bytes.
struct Decoded {
  char32_t code_point = 0;
  uint32_t size = 0;
};

/// The code point at text[at]; text must be well formed and at < text.size().
inline Decoded decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {((lead & 0x1f) << 6) | (byte(1) & 0x3f), 2};
  if (lead < 0xf0) return {((lead & 0x0f) << 12) | ((byte(1) & 0x3f) << 6) | (byte(2) & 0x3f), 3};
  return {
      ((lead & 0x07) << 18) | ((byte(1) & 0x3f) << 12) | ((byte(2) & 0x3f) << 6) | (byte(3) & 0x3f),
      4};
}
/// The code point that ends before text[end]; end > 0.
Decoded decode_before(std::string_view text, size_t end);

/// Whether a byte is a continuation byte.
constexpr bool is_tail(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u;
}
/// Bytes of the well-formed code point at text[at], 0 where it is ill-formed; at < text.size().
size_t well_formed_size(std::string_view text, size_t at);
/// Bytes at the end of text that begin a code point which goes on after it.
size_t unfinished_size(std::string_view text);

/// Appends code_point as UTF-8.
void append(std::string& text, char32_t code_point);
std::string encode(char32_t code_point);

/// Number of code points of well-formed text.
size_t length(std::string_view text);

/// Offset of the first byte outside any well-formed code point, if any.
std::optional<size_t> find_invalid(std::string_view text);
inline bool is_valid(std::string_view text) {
  return !find_invalid(text);
}
/// Replaces every maximal ill-formed part of text by U+FFFD, as Unicode 3.9 recommends and Python
/// (errors="replace") and Rust (from_utf8_lossy) do.
std::string replace_invalid(std::string_view text);

}  // namespace kvcal::utf8
