#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("falcon: as in transformers") {
  kvcal::test::check_family({"falcon_7b", "falcon_11b", "falcon_40b", "falcon_sequential"});
}
