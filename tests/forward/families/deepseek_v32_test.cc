#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("deepseek_v32: as in transformers") {
  kvcal::test::check_family({"deepseek_v32", "deepseek_v32_sparse"});
}
