#include "core/text.h"

#include <vector>

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("join: nothing, one text, several, and texts made of items") {
  CHECK(join(std::vector<std::string>{}, ", ").empty());
  CHECK(join(std::vector<std::string>{"a"}, ", ") == "a");
  CHECK(join(std::vector<std::string>{"", "b", ""}, ", ") == ", b, ");
  CHECK(join(std::vector<std::string_view>{"a", "b"}, " or ") == "a or b");
  CHECK(join(std::vector<int>{1, 2, 3}, "-", [](int i) { return std::to_string(i); }) == "1-2-3");
}

TEST_CASE("split: one part more than there are separators") {
  using Parts = std::vector<std::string_view>;
  CHECK(split("a,b", ',') == Parts{"a", "b"});
  CHECK(split(",a,,", ',') == Parts{"", "a", "", ""});
  CHECK(split("a b", ',') == Parts{"a b"});
  CHECK(split("", ',') == Parts{""});
}

TEST_CASE("has_word: whole words between spaces") {
  CHECK(has_word("scale shift", "scale"));
  CHECK(has_word("scale shift", "shift"));
  CHECK_FALSE(has_word("scale shift", "scal"));
  CHECK_FALSE(has_word("", "scale"));
}

TEST_CASE("text: capitals, replaced parts, keys as words and counts with their unit") {
  CHECK(ascii_upper("mxfp4_e2M1 \xc3\xa9") == "MXFP4_E2M1 \xc3\xa9");
  CHECK(replaced("a--b-", "-", "->") == "a->->b->");
  CHECK(replaced("aaa", "aa", "") == "a");
  CHECK(key_words("kv_forward_ms") == "kv forward ms");
  CHECK(counted(1, "sample") == "1 sample");
  CHECK(counted(int64_t{0}, "sample") == "0 samples");
  CHECK(byte_text(int64_t{1500000}) == byte_text(1.5e6));
}
