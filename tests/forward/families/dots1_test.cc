#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("dots1: as in transformers") {
  kvcal::test::check_family({"dots1"});
}
