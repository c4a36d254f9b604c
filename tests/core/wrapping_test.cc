#include "core/wrapping.h"

#include "core/text.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

using Rows = std::vector<std::string_view>;

}  // namespace

TEST_CASE("wrapping: wide characters count as two columns, marks of drawings as one") {
  CHECK(columns_of("abc") == 3);
  CHECK(columns_of("±é") == 2);
  CHECK(columns_of("▁█…") == 3);
  CHECK(columns_of("日本") == 4);
}

TEST_CASE("wrapping: rows end at the last space that fits, and have none at their ends") {
  CHECK(word_rows("one two three", 7) == Rows{"one two", "three"});
  CHECK(word_rows("one two three", 8) == Rows{"one two", "three"});
  CHECK(word_rows("one two three", 6) == Rows{"one", "two", "three"});
  CHECK(word_rows("one  two", 5) == Rows{"one", "two"});
  CHECK(word_rows("one two three", 9, 4) == Rows{"one", "two three"});
  CHECK(word_rows("one two ", 20) == Rows{"one two"});
  CHECK(word_rows("", 5) == Rows{""});
}

TEST_CASE("wrapping: a word longer than a row stays whole") {
  CHECK(word_rows("a/long/path b", 4) == Rows{"a/long/path", "b"});
  CHECK(word_rows("to a/long/path b", 4) == Rows{"to", "a/long/path", "b"});
}

TEST_CASE("wrapping: spaces at the beginning stay") {
  CHECK(word_rows("  one two", 5) == Rows{"  one", "two"});
  CHECK(word_rows("  longer two", 4) == Rows{"  longer", "two"});
}

TEST_CASE("wrapping: a number stays with its unit") {
  CHECK(word_rows("in all 35.5 kB a token", 11) == Rows{"in all", "35.5 kB a", "token"});
  CHECK(word_rows("of 512 tokens", 6) == Rows{"of 512", "tokens"});
}

TEST_CASE("wrapping: a row is as wide as a terminal shows it") {
  CHECK(word_rows("äöü éèê", 7) == Rows{"äöü éèê"});
  CHECK(word_rows("日本 語", 6) == Rows{"日本", "語"});
}

TEST_CASE("wrapping: columns of a table are even where characters have several bytes") {
  TextTable table({"KL", "name"});
  table.add({"1 ± 2", "a"});
  table.add({"1.5", "é"});
  CHECK(table.text() == "   KL  name\n1 ± 2     a\n  1.5     é\n");
}
