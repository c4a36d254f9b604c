#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("glm4v: as in transformers") {
  kvcal::test::check_family({"glm4v", "glm46v"});
}
