#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("smollm3: as in transformers") {
  kvcal::test::check_family({"smollm3"});
}
