#include "core/text.h"

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("text table: each column is as wide as its widest cell, and aligned to the right") {
  TextTable table({"layer", "k"});
  table.add({"0", "0.125"});
  table.add({"10", "-"});
  CHECK(table.text() ==
        "layer      k\n"
        "    0  0.125\n"
        "   10      -\n");
}

TEST_CASE("text table: a heading alone is a line, and rows may be shorter or longer than it") {
  CHECK(TextTable({"a", "b"}).text() == "a  b\n");
  TextTable table({"a"});
  table.add({"b", "long"});
  table.add({"c"});
  CHECK(table.text() == "a\nb  long\nc\n");
}

TEST_CASE("text table: what a terminal would obey is escaped, and the columns fit the escapes") {
  TextTable table({"a\tb"});
  table.add({"\x1b[2J"});
  table.add({"c\nd"});
  CHECK(table.text() ==
        "   a\\tb\n"
        "\\x1b[2J\n"
        "   c\\nd\n");
}
