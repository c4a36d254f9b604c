#include "core/text.h"

#include "support/catch.h"

using kvcal::shell_word;

TEST_CASE("shell_word: plain text stays, other text is quoted") {
  CHECK(shell_word("out/model-1_2.3") == "out/model-1_2.3");
  CHECK(shell_word("the output") == "'the output'");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("a'b") == "'a'\\''b'");
  CHECK(shell_word("$HOME") == "'$HOME'");
}
