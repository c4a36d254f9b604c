#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("stablelm: as in transformers") {
  kvcal::test::check_family({"stablelm", "stablelm_parallel"});
}
