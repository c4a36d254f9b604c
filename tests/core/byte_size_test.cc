#include "core/text.h"

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::message_of;

TEST_CASE("byte size: a number and a unit") {
  CHECK(parse_byte_size("12") == 12);
  CHECK(parse_byte_size("3B") == 3);
  CHECK(parse_byte_size("2KB") == 2000);
  CHECK(parse_byte_size("2kib") == 2048);
  CHECK(parse_byte_size("8GiB") == uint64_t{8} << 30);
  CHECK(parse_byte_size("1.5 GiB") == uint64_t{3} << 29);
  CHECK(parse_byte_size("44.51MB") == 44'510'000);
}

TEST_CASE("byte size: anything else is refused with what was found") {
  const std::string expected = " is no size, expected a number and a unit like 8GiB";
  const auto refusal = [](const std::string& text) {
    return message_of([&] { parse_byte_size(text); });
  };
  for (const char* text :
       {"", "GiB", "1.5", "1.GiB", "1 ", "1  GiB", " 1", "-1", "nan", "inf", "1 GiB x"})
    CHECK(refusal(text).starts_with("'" + std::string(text) + "'" + expected));
  CHECK(refusal("8GoB") == "'8GoB'" + expected + " (did you mean 'GB'?)");
  CHECK(refusal("8\x1b").starts_with("'8\\x1b'" + expected));
  CHECK(refusal(std::string(400, '9')).size() < 300);
  CHECK_THROWS_AS(parse_byte_size("99999999999999GiB"), Error);
}
