#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("seed_oss: as in transformers") {
  kvcal::test::check_family({"seed_oss"});
}
