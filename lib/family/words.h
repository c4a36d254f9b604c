#pragma once

#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvcal {

/// An enum's values as its declaration lists them: "kNone, kAfterFirst".
struct EnumText {
  std::string_view what;  ///< kind of value, for messages
  std::string_view enumerators;
};

/// Declares an enum whose values files of families name: kAfterFirst is after_first there.
#define KVCAL_WORDED_ENUM(Enum, what, ...)   \
  enum class Enum : uint8_t { __VA_ARGS__ }; \
  inline EnumText text_of(Enum) {            \
    return {what, #__VA_ARGS__};             \
  }

/// "kAfterFirst": "after_first".
inline std::string word_of_enumerator(std::string_view enumerator) {
  std::string word;
  for (const char c : enumerator.substr(1)) {
    const bool is_upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (is_upper && !word.empty()) word += '_';
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return word;
}

}  // namespace kvcal
