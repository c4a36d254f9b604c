#include "terminal/layout.h"

#include "core/text.h"
#include "core/wrapping.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

/// Every row of every line is as wide as may be; a word alone may be wider.
void check_rows(const std::string& text, size_t columns) {
  for (const std::string_view row : split(text, '\n')) {
    INFO(row);
    const size_t begin = std::min(row.find_first_not_of(' '), row.size());
    const bool is_one_word = row.find(' ', begin) == row.npos;
    CHECK((columns_of(row) <= columns || is_one_word));
  }
}

}  // namespace

TEST_CASE("layout: rows end at words, and go on below the second column") {
  CHECK(in_rows("short", 10) == "short");
  CHECK(in_rows("KL    0.0121 against 16 bits", 20) == "KL    0.0121 against\n      16 bits");
  // Too little would be left below the second column.
  CHECK(in_rows("a label of many words  its text goes on", 24) ==
        "a label of many words\n  its text goes on");
  CHECK(in_rows("  remedy: write it as ModelOpt", 20) == "  remedy: write it\n    as ModelOpt");
}

TEST_CASE("layout: a word that is longer than a row, and a command, stay whole") {
  CHECK(in_rows("wrote /a/path/of/many/letters here", 12) ==
        "wrote\n  /a/path/of/many/letters\n  here");
  CHECK(in_rows("  $ vllm serve OUT --kv-cache-dtype fp8", 12) ==
        "  $ vllm serve OUT --kv-cache-dtype fp8");
  CHECK(in_rows("vLLM 0.33: loaded: vllm serve OUT", 12) == "vLLM 0.33: loaded: vllm serve OUT");
}

TEST_CASE("layout: no row is wider than the terminal, from 20 columns on") {
  const std::string lines[] = {
      "verdict     with these scales fine: predicted KL 0.0072 (fine up to 0.02)",
      "    1  0.0446282  0.0139512  19.9934  6.25015          0          0",
      "error: model: 14 weights do not fit W4A4: model.layers.0.mlp.down_proj: 80 inputs",
      "über Überschriften und Ähnliches, 日本語 の 文字 も 二つ の 列 を 取る"};
  for (size_t columns = 20; columns <= 120; ++columns)
    for (const std::string& line : lines) check_rows(in_rows(line, columns), columns);
}

TEST_CASE("layout: first words and verdicts have colours, other text has none") {
  CHECK(coloured("error: no") == "\x1b[31merror:\x1b[0m no");
  CHECK(coloured("verdict     with these scales fine: KL") ==
        "verdict     with these scales \x1b[32mfine\x1b[0m: KL");
  CHECK(coloured("verdict 1.0 with scale 1.0 do not serve: KL") ==
        "verdict 1.0 with scale 1.0 \x1b[31mdo not serve\x1b[0m: KL");
  CHECK(coloured("all is fine") == "all is fine");
}
