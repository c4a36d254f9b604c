/// The character properties that tokenizers split and normalize by: those of the `tokenizers`
/// library 0.23 (unicode/unicode_tables.h), not of the system's Unicode version.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/utf8.h"

namespace kvcal::unicode {

using namespace utf8;

/// General categories, in the order of the tables.
// clang-format off
enum class Category : uint8_t {
  kLu, kLl, kLt, kLm, kLo, kMn, kMc, kMe, kNd, kNl, kNo, kPc, kPd, kPs, kPe,
  kPi, kPf, kPo, kSm, kSc, kSk, kSo, kZs, kZl, kZp, kCc, kCf, kCs, kCo, kCn
};
// clang-format on
/// "Lu": the two letters of a category.
std::string_view name_of(Category category);

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
/// The end of the run of spaces that begins at `at`, and the begin of the one that ends at `end`.
size_t spaces_end(std::string_view text, size_t at);
size_t spaces_begin(std::string_view text, size_t end);
/// Rust's char::is_numeric.
bool is_numeric(char32_t code_point);
/// \w of Rust's regex crate.
bool is_word(char32_t code_point);
/// ASCII punctuation or the P categories, as the Punctuation pre-tokenizer sees them.
bool is_punctuation(char32_t code_point);
/// Characters that StripAccents and BertNormalizer remove.
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

enum class Normalization { kNfc, kNfd, kNfkc, kNfkd };

/// text (valid UTF-8) in a normalization form, with the tables of the `tokenizers`
/// library: code points that are newer than its Unicode 9 stay as they are.
std::string normalize(std::string_view text, Normalization form);

/// End of the extended grapheme cluster that starts at text[at].
size_t grapheme_end(std::string_view text, size_t at);

}  // namespace kvcal::unicode
