#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("deepseek_v3: as in transformers") {
  kvcal::test::check_family({"deepseek_v3", "deepseek_v3_fp8"});
}
