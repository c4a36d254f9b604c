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

TEST_CASE("text table: over 80 columns, words of the widest cells go below others") {
  TextTable table({"a heading of some words", "another of as many words", "a third, which is long",
                   "and a fourth of them"});
  table.add({"fp8_e4m3", "64", "0.002", "y"});
  const std::string text = table.text();
  for (const std::string_view row : split(text, '\n')) CHECK(row.size() <= 80);
  CHECK(text ==
        "a heading of some  another of as many  a third, which is  and a fourth of them\n"
        "            words               words               long\n"
        "         fp8_e4m3                  64              0.002                     y\n");
}

TEST_CASE("text table: headings give way before cells, and a number keeps its percent sign") {
  TextTable table(
      {"cache", "bytes a token", "mean KL", "standard error", "perplexity", "same top", "verdict"});
  table.add({"int8_per_token_head", "96", "0.000337", "0.000073", "-0.127 %", "100.00 %", "fine"});
  table.add({"fp8_e4m3, these scales", "64", "0.012061", "0.003566", "+6.932 %", "81.25 %",
             "noticeable"});
  CHECK(table.text() ==
        "              cache  bytes   mean KL  standard  perplexity  same top     verdict\n"
        "                         a               error\n"
        "                     token\n"
        "int8_per_token_head     96  0.000337  0.000073    -0.127 %  100.00 %        fine\n"
        "    fp8_e4m3, these     64  0.012061  0.003566    +6.932 %   81.25 %  noticeable\n"
        "             scales\n");
}

TEST_CASE("text table: what no words part stays wider") {
  const std::string word(90, 'x');
  TextTable table({"a", "b"});
  table.add({word, "c"});
  CHECK(table.text() == std::string(89, ' ') + "a  b\n" + word + "  c\n");
}
