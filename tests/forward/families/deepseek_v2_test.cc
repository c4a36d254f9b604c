#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("deepseek_v2: as in transformers") {
  kvcal::test::check_family({"deepseek_v2", "deepseek_v2_groups"});
}
