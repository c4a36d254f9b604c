#include "core/text.h"

#include "core/error.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::message_of;

TEST_CASE("shown text: what a terminal would obey is escaped, all else stays") {
  CHECK(shown_text("layers.0 größer 模型 \xF0\x9F\x98\x80") ==
        "layers.0 größer 模型 \xF0\x9F\x98\x80");
  CHECK(shown_text("a\x1b[2J\x07"
                   "b\nc\td\re\x7f") ==
        "a\\x1b[2J\\x07"
        "b\\nc\\td\\re\\u007f");
  CHECK(shown_text(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(shown_text("\u009b31m") == "\\u009b31m");
  CHECK(shown_text("\u202egnp.exe\u2066\u200f\u061c\u2028") ==
        "\\u202egnp.exe\\u2066\\u200f\\u061c\\u2028");
  CHECK(shown_text("\x9b"
                   "31m \xe4\xb8") ==
        "\\x9b"
        "31m \\xe4\\xb8");
  CHECK(shown_lines("a\n\tb\x1b") == "a\n\tb\\x1b");
  CHECK(shown_name("a\nb") == "'a\\nb'");
}

TEST_CASE("shown text: every character of C0, C1 and Unicode's bidirectional controls is escaped") {
  for (unsigned c = 0; c < 0x20; ++c)
    CHECK(shown_text(std::string(1, static_cast<char>(c))).starts_with('\\'));
  for (unsigned c = 0x7f; c < 0xa0; ++c) {
    const std::string text = c == 0x7f ? "\x7f" : std::string{'\xc2', static_cast<char>(c)};
    CHECK(shown_text(text).starts_with("\\u00"));
  }
  CHECK(shown_text("\u00a0") == "\u00a0");
}

TEST_CASE("shown text: a message has an end") {
  const std::string most(kMostMessageBytes, 'x');
  CHECK(shown_message(most) == most);
  CHECK(shown_message(most + "yz") == most + " ... (2 more bytes)");
  const std::string grown = shown_message(std::string(kMostMessageBytes, '\x1b'));
  CHECK(grown.size() < kMostMessageBytes + 40);
  std::string wide = "x";
  while (wide.size() < 2 * kMostMessageBytes) wide += "é";
  CHECK(shown_message(wide) == wide.substr(0, kMostMessageBytes - 1) + " ... (" +
                                   std::to_string(wide.size() - kMostMessageBytes + 1) +
                                   " more bytes)");
}

TEST_CASE("error: text that is no literal breaks no line of a message") {
  const std::string name = "a\nb\x1b]0;title\x07";
  CHECK(message_of([&] { fail("tensor ", name, ", expected\n", 1); }) ==
        "tensor a\\nb\\x1b]0;title\\x07, expected\n1");
  CHECK(message_of([&] { fail('\x1b', name.c_str()); }) == "\\x1ba\\nb\\x1b]0;title\\x07");
  CHECK(message_of([&] { fail("two", Lines{"\nlines"}); }) == "two\nlines");
  CHECK(message_of([&] { in_context(name, [] { fail("x"); }); }) == "a\\nb\\x1b]0;title\\x07: x");
}
