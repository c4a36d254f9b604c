#include "unicode/unicode.h"

#include <functional>

#include "core/file.h"
#include "core/json.h"
#include "support/catch.h"
#include "support/folders.h"
#include "tokenizers/components.h"

using namespace kvcal;

namespace {

/// FNV-1a of the results for every code point but the surrogates and NUL.
std::string hash_of_all(const std::function<std::string(const std::string&)>& result) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    for (const char byte : result(unicode::encode(c)))
      hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  }
  return std::to_string(hash);
}

}  // namespace

TEST_CASE("unicode: normalizers do to every code point what the library does") {
  const Json expected =
      parse_json(read_text(test::tests_folder() / "fixtures/text/tokenizers/unicode.json"));
  for (const char* type : {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"}) {
    INFO(type);
    const auto normalizer = tokenizers::kNormalizers.at(type)(Json::object());
    const auto apply = [&](const std::string& text) {
      tokenizers::Normalized normalized{text, 0};
      normalizer->apply(normalized);
      return normalized.text;
    };
    CHECK(hash_of_all(apply) == expected.at(type).get<std::string>());
    CHECK(hash_of_all([&](const std::string& c) { return apply(c + "\xcc\xa3\xcc\x81" + c); }) ==
          expected.at(std::string(type) + " combined").get<std::string>());
  }
}

TEST_CASE("unicode: encoding and decoding are inverse for every code point") {
  size_t wrong = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const std::string text = unicode::encode(c);
    if (c >= 0xd800 && c < 0xe000) {
      wrong += unicode::is_valid(text) ? 1 : 0;
      continue;
    }
    const unicode::Decoded first = unicode::decode(text, 0),
                           last = unicode::decode_before("x" + text, text.size() + 1);
    const bool is_right = unicode::is_valid(text) && first.code_point == c &&
                          first.size == text.size() && last.code_point == c &&
                          last.size == text.size();
    wrong += is_right ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("unicode: each maximal ill-formed part becomes one U+FFFD") {
  // Source: The Unicode Standard, table 3-8 and its neighbours.
  const std::string bad = "\xef\xbf\xbd";
  CHECK(unicode::replace_invalid("a\xf1\x80\x80\xe1\x80\xc2"
                                 "b\x80"
                                 "c\x80\xbf"
                                 "d") == "a" + bad + bad + bad + "b" + bad + "c" + bad + bad + "d");
  CHECK(unicode::replace_invalid("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
                                 "A") == bad + bad + bad + bad + bad + bad + bad + bad + "A");
  CHECK(unicode::replace_invalid("\xed\xa0\x80") == bad + bad + bad);
  CHECK(unicode::replace_invalid("ok \xe2\x96\x81") == "ok \xe2\x96\x81");
}

TEST_CASE("unicode: a long run of marks is normalized in reasonable time") {
  std::string text = "e";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\xcc\x81" : "\xcc\xa3";
  CHECK(unicode::normalize(text, unicode::Normalization::kNfd).size() == text.size());
  CHECK(unicode::length(unicode::normalize(text, unicode::Normalization::kNfc)) <
        unicode::length(text));
}
