#include "core/error.h"

#include "core/interrupt.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::message_of;

TEST_CASE("error: places are prepended on the way up, outermost first") {
  CHECK(message_of([] {
          in_context("file", [] {
            in_context("tensor 'a'", [] { fail("shape ", 3, ", expected ", 4.5); });
          });
        }) == "file: tensor 'a': shape 3, expected 4.5");
  CHECK(in_context("place", [] { return 7; }) == 7);
  int value = 1;
  int& reference = in_context("place", [&]() -> int& { return value; });
  reference = 2;
  CHECK(value == 2);
}

TEST_CASE("error: another exception passes through a context untouched") {
  CHECK_THROWS_AS(in_context("place", [] { throw Interrupted(); }), Interrupted);
  try {
    fail("text");
  } catch (const std::exception& error) {
    CHECK(std::string(error.what()) == "text");
  }
}

TEST_CASE("interrupt: is asked for, seen and taken back") {
  throw_if_interrupted();
  request_interrupt();
  CHECK_THROWS_AS(throw_if_interrupted(), Interrupted);
  clear_interrupt();
  CHECK_NOTHROW(throw_if_interrupted());
}
