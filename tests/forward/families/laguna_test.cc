#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("laguna: as in transformers") {
  kvcal::test::check_family({"laguna", "laguna_elements"});
}
