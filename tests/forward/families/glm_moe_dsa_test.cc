#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("glm_moe_dsa: as in transformers") {
  kvcal::test::check_family({"glm_moe_dsa", "glm_moe_dsa_sparse"});
}
