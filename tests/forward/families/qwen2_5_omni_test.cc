#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("qwen2_5_omni: as in transformers") {
  kvcal::test::check_family({"qwen2_5_omni_thinker"});
}
