#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("glm4v_moe: as in transformers") {
  kvcal::test::check_family({"glm4v_moe"});
}
