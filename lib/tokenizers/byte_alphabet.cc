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

}  // namespace kvcal::tokenizers
