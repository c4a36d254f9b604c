#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("persimmon: as in transformers") {
  kvcal::test::check_family({"persimmon"});
}
