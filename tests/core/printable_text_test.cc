#include "core/printable_text.h"

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("printable text: control characters are escaped, but not line ends") {
  CHECK(printable_text("a\x1b[2J\tb\x7f") == "a\\x1b[2J\\x09b\\x7f");
  CHECK(printable_text(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(printable_text("two\nlines") == "two\nlines");
}

TEST_CASE("printable text: UTF-8 stays as it is") {
  CHECK(printable_text("Größe 日本") == "Größe 日本");
}
