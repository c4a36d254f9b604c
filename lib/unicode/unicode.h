#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// UTF-8 and the character properties that tokenizers split and normalize by. Properties are those
/// of the `tokenizers` library 0.23 (see text/unicode_tables.h), not of the system's Unicode
/// version.
namespace kvcal::unicode {

/// General categories, in the order of the tables.
enum class Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,  // clang-format off
  kPi, kPf, kPo, kSm, kSc, kSk, kSo, kZs, kZl, kZp, kCc, kCf, kCs, kCo, kCn  // clang-format on
};
constexpr int kCategoryCount = 30;
/// "Lu": the two letters of a category.
std::string_view name_of(Category category);

/// One code point and the bytes it takes.
struct Decoded {
  char32_t code_point = 0;
  uint32_t size = 0;
};
/// The code point at text[at]; text must be valid UTF-8 and at < text.size().
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
/// The code point that ends at text[end - 1]; end > 0.
Decoded decode_before(std::string_view text, size_t end);
/// Appends code_point as UTF-8.
void append(std::string& text, char32_t code_point);
std::string encode(char32_t code_point);
/// Number of code points; text must be valid UTF-8.
size_t length(std::string_view text);

/// True for well-formed UTF-8 (no surrogates, no overlong forms).
bool is_valid(std::string_view text);
/// text with every maximal ill-formed part replaced by U+FFFD, as Unicode 3.9 recommends and both
/// Python (errors="replace") and Rust (from_utf8_lossy) do.
std::string replace_invalid(std::string_view text);

Category category(char32_t code_point);
inline bool is_letter(Category c) {
  return c <= Category::kLo;
}
inline bool is_mark(Category c) {
  return c >= Category::kMn && c <= Category::kMe;
}
inline bool is_number(Category c) {
  return c >= Category::kNd && c <= Category::kNo;
}

/// White_Space; the same in every version and part of the library.
bool is_space(char32_t code_point);
/// Rust's char::is_numeric.
bool is_numeric(char32_t code_point);
/// \w of Rust's regex crate.
bool is_word(char32_t code_point);
/// ASCII punctuation or the P categories, as the Punctuation pre-tokenizer sees them.
bool is_punctuation(char32_t code_point);
/// What StripAccents and BertNormalizer remove.
bool is_combining_mark(char32_t code_point);
bool is_nonspacing_mark(char32_t code_point);
bool is_control(char32_t code_point);
/// Takes no part in normalization.
bool is_frozen(char32_t code_point);

/// Appends the lower case of code_point (U+0130 becomes two code points).
void append_lower(std::string& text, char32_t code_point);

using Ranges = std::vector<std::pair<char32_t, char32_t>>;
/// Code points assigned after Unicode 14 whose category's name starts with prefix ("L", "Lu").
Ranges assigned_after_unicode_14(std::string_view prefix);

}  // namespace kvcal::unicode
