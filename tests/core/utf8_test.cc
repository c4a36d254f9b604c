#include "core/utf8.h"

#include <vector>

#include "support/catch.h"

using namespace kvcal;

namespace {

/// One of each size, and the ends of every range.
const std::vector<char32_t> kPoints{0,      0x7f,   0x80,   0x7ff,   0x800,   0xd7ff,
                                    0xe000, 0xfffd, 0xffff, 0x10000, 0x10ffff};

}  // namespace

TEST_CASE("utf8: what append writes, decode reads, forwards and backwards") {
  std::string text;
  for (const char32_t point : kPoints) utf8::append(text, point);
  CHECK(utf8::is_valid(text));
  CHECK(utf8::length(text) == kPoints.size());
  size_t at = 0;
  for (const char32_t point : kPoints) {
    const utf8::Decoded found = utf8::decode(text, at);
    CHECK(found.code_point == point);
    CHECK(found.size == utf8::encode(point).size());
    CHECK(utf8::well_formed_size(text, at) == found.size);
    at += found.size;
    CHECK(utf8::decode_before(text, at).code_point == point);
    CHECK(utf8::decode_before(text, at).size == found.size);
  }
  CHECK(at == text.size());
}

TEST_CASE("utf8: text that is not well formed") {
  struct Case {
    std::string text;
    size_t first_invalid;
    std::string replaced;
  };
  const std::string bad = "\xef\xbf\xbd";
  const std::vector<Case> cases{
      {"a\x80", 1, "a" + bad},                         // a tail without a lead
      {"\xc0\xaf", 0, bad + bad},                      // overlong, two bytes
      {"\xe0\x9f\xbf", 0, bad + bad + bad},            // overlong, three bytes
      {"ab\xed\xa0\x80", 2, "ab" + bad + bad + bad},   // a surrogate
      {"\xf4\x90\x80\x80", 0, bad + bad + bad + bad},  // above U+10FFFF
      {"\xf5", 0, bad},
      {"\xe2\x82", 0, bad},             // cut short: one part
      {"\xf0\x9f\x98!", 0, bad + "!"},  // cut short by another character
      {"\xc3\xa4\xff", 2, "\xc3\xa4" + bad},
  };
  for (const Case& one : cases) {
    INFO(one.text);
    CHECK_FALSE(utf8::is_valid(one.text));
    CHECK(utf8::find_invalid(one.text) == one.first_invalid);
    CHECK(utf8::replace_invalid(one.text) == one.replaced);
    CHECK(utf8::is_valid(utf8::replace_invalid(one.text)));
  }
  CHECK(utf8::is_valid(""));
  CHECK_FALSE(utf8::find_invalid("gr\xc3\xbc\xc3\x9f").has_value());
}

TEST_CASE("utf8: the start of a character waits for its end") {
  CHECK(utf8::unfinished_size("") == 0);
  CHECK(utf8::unfinished_size("ab") == 0);
  CHECK(utf8::unfinished_size("aé") == 0);
  CHECK(utf8::unfinished_size("a\xc3") == 1);
  CHECK(utf8::unfinished_size("\xf0\x9f\x98") == 3);
  CHECK(utf8::unfinished_size("\xf0\x9f\x98\x80") == 0);
  CHECK(utf8::unfinished_size("\x80\x80\x80\x80") == 0);
  CHECK(utf8::unfinished_size("\xff") == 0);
}
