#include "core/text.h"

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;

TEST_CASE("number text: digits, shares and sizes as people read them") {
  CHECK(fixed("%+.2f", 0.125) == "+0.12");
  CHECK(short_float(0.0240521) == "0.0240521");
  CHECK(percent(0.0) == "0");
  CHECK(percent(0.001234) == "0.123 %");
  CHECK(byte_text(999.0) == "999 B");
  CHECK(byte_text(269.1e6) == "269.1 MB");
  CHECK(byte_text(2e18) == "2000000.0 TB");
}

TEST_CASE("number text: neighbours become a range") {
  CHECK(range_text({}).empty());
  CHECK(range_text({3}) == "3");
  CHECK(range_text({0, 1, 2, 4, 6, 7}) == "0-2, 4, 6-7");
}

TEST_CASE("number text: fractions are numbers or percents") {
  CHECK(parse_fraction("0.005") == 0.005);
  CHECK(parse_fraction("0.5%") == 0.005);
  CHECK(parse_fraction("0") == 0.0);
  CHECK(parse_fraction("1000000") == 1e6);
  for (const char* bad :
       {"", "%", "-1", "-0.5%", "0.5 %", "nan", "inf", "1e999", "1000001", "half", "1,5"}) {
    INFO(bad);
    CHECK(contains(message_of([&] { parse_fraction(bad); }), "is no fraction"));
  }
}

TEST_CASE("number text: a share is at most the whole") {
  CHECK(parse_part("100%") == 1.0);
  CHECK(contains(message_of([] { parse_part("77"); }), "percents have their sign"));
  CHECK(contains(message_of([] { parse_part("101%"); }), "expected at most 1 or 100%"));
}
