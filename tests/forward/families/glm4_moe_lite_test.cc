#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("glm4_moe_lite: as in transformers") {
  kvcal::test::check_family({"glm4_moe_lite"});
}
