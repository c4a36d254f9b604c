#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("falcon_h1: as in transformers") {
  kvcal::test::check_family({"falcon_h1", "falcon_h1_normed"});
}
