#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvcal::tokenizers {

/// GPT-2's alphabet: each byte as one printable character. Bytes that print in Latin-1 stand for
/// themselves, the others, in order, for U+0100 on. Source: openai/gpt-2, encoder.py,
/// bytes_to_unicode.
char32_t byte_to_character(uint8_t byte);
std::optional<uint8_t> byte_from_character(char32_t character);

/// Appends the characters of bytes.
void append_byte_alphabet(std::string& text, std::string_view bytes);
/// The bytes that text spells, or nullopt when a character of it is not of the alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

/// The bytes of base64 text (RFC 4648, padding not needed), or nullopt for other characters.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace kvcal::tokenizers
