#include "tokenizers/byte_alphabet.h"

#include <array>

#include "unicode/unicode.h"

namespace kvcal::tokenizers {
namespace {

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 512> byte{};
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet = [] {
    Alphabet result;
    result.byte.fill(-1);
    char32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool prints =
          (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const char32_t character = prints ? byte : next++;
      result.character[byte] = character;
      result.byte[character] = static_cast<int16_t>(byte);
    }
    return result;
  }();
  return kAlphabet;
}

std::array<int8_t, 256> digit_values() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return values;
}

}  // namespace

char32_t byte_to_character(uint8_t byte) {
  return alphabet().character[byte];
}

std::optional<uint8_t> byte_from_character(char32_t character) {
  if (character >= 512 || alphabet().byte[character] < 0) return std::nullopt;
  return static_cast<uint8_t>(alphabet().byte[character]);
}

void append_byte_alphabet(std::string& text, std::string_view bytes) {
  for (const char byte : bytes)
    unicode::append(text, byte_to_character(static_cast<uint8_t>(byte)));
}

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const unicode::Decoded next = unicode::decode(text, at);
    const auto byte = byte_from_character(next.code_point);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    at += next.size;
  }
  return bytes;
}

std::optional<std::string> decode_base64(std::string_view text) {
  static const std::array<int8_t, 256> kValues = digit_values();
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const int8_t value = kValues[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>((bits >> count) & 0xff));
    }
  }
  return bytes;
}

}  // namespace kvcal::tokenizers
