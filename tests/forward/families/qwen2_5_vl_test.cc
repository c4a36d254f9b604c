#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("qwen2_5_vl: as in transformers") {
  kvcal::test::check_family({"qwen2_5_vl"});
}
