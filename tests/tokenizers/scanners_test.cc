#include <array>

#include "core/error.h"
#include "support/catch.h"
#include "tokenizer_fixtures.h"
#include "tokenizers/pattern.h"
#include "unicode/unicode.h"

using namespace kvcal;
using namespace kvcal::tokenizers;

namespace {

constexpr std::string_view kHead = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?)";
constexpr std::string_view kTail = R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<std::string> known_expressions() {
  return {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      std::string(kHead) + R"(\p{L}+|\p{N}{1,3}|)" + std::string(kTail),
      std::string(kHead) + R"(\p{L}+|\p{N}|)" + std::string(kTail),
      std::string(kHead) +
          R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
  };
}

std::vector<size_t> ends(const Pattern& pattern, std::string_view text) {
  std::vector<size_t> result;
  pattern.for_each(text, [&](Span match) {
    result.push_back(match.begin);
    result.push_back(match.end);
  });
  return result;
}

}  // namespace

TEST_CASE("scanners split all short texts of all kinds of characters as the expression does") {
  // One or more of each kind that an expression tells apart: letters of the contractions, marks,
  // numbers, spaces.
  const std::array<std::string, 17> alphabet{
      "'",        "s", "T",        "r", "e",  "L",  "x",  "\xc5\xbf",
      "\xcc\x81", "7", "\xc2\xbd", " ", "\t", "\n", "\r", "\xe3\x80\x80",
      "!"};
  for (const std::string& expression : known_expressions()) {
    const auto scanner = make_scanner(expression);
    REQUIRE(scanner);
    const auto regex = make_pcre2_regex(expression);
    size_t differing = 0;
    for (size_t number = 0; number < 17 * 17 * 17 * 17; ++number) {
      std::string text;
      for (size_t rest = number, i = 0; i < 4; ++i, rest /= 17) text += alphabet[rest % 17];
      if (ends(*scanner, text) != ends(*regex, text)) {
        ++differing;
        UNSCOPED_INFO("differs on '" << text << "'");
      }
    }
    INFO(expression);
    CHECK(differing == 0);
  }
}

TEST_CASE("scanners split long random texts and the hard texts as the expression does") {
  const std::string letters = "aZ'stremd1 2\t\n\r.,  ";
  for (const std::string& expression : known_expressions()) {
    INFO(expression);
    const auto scanner = make_scanner(expression);
    const auto regex = make_pcre2_regex(expression);
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const std::string text = test::generated_text(300, seed, letters);
      CHECK(ends(*scanner, text) == ends(*regex, text));
    }
    for (const std::string& bytes : test::hard_texts()) {
      const std::string text = unicode::replace_invalid(bytes);
      INFO(text);
      CHECK(ends(*scanner, text) == ends(*regex, text));
    }
  }
}

TEST_CASE("scanners and expressions put every code point into the same class") {
  // Each code point between letters and spaces, 32 a text.
  for (const std::string& expression : known_expressions()) {
    const auto scanner = make_scanner(expression);
    const auto regex = make_pcre2_regex(expression);
    size_t differing = 0;
    std::string text;
    for (char32_t c = 1; c < 0x110000; ++c) {
      if (c < 0xd800 || c > 0xdfff) text += "a" + unicode::encode(c) + " ";
      if (c % 32 != 31) continue;
      if (ends(*scanner, text) != ends(*regex, text)) {
        ++differing;
        UNSCOPED_INFO("differs near U+" << std::hex << static_cast<uint32_t>(c));
      }
      text.clear();
    }
    INFO(expression);
    CHECK(differing == 0);
  }
}
