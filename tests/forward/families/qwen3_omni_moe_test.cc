#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("qwen3_omni_moe: as in transformers") {
  kvcal::test::check_family({"qwen3_omni_moe_thinker"});
}
