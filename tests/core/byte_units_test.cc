#include "core/byte_units.h"

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("byte units: a size is told in the kind of unit that the limit was typed in") {
  CHECK(limit_text(uint64_t{8} << 30) == "8 GiB");
  CHECK(limit_text(8'000'000'000) == "8 GB");
  CHECK(limit_text(1000) == "1 kB");
  CHECK(limit_text(77) == "77 B");
  CHECK(byte_text_beside(uint64_t{1} << 20, uint64_t{3} << 19) == "1.5 MiB");
  CHECK(byte_text_beside(1'000'000, 150'305'504) == "150.4 MB");
  CHECK(byte_text_beside(1, 3'500'001) == "3.501 MB");
  CHECK(byte_text_beside(1, 3'500'000) == "3.5 MB");
  CHECK(byte_text_beside(1, 999) == "999 B");
}
