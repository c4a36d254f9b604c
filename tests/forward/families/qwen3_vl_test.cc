#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("qwen3_vl: as in transformers") {
  kvcal::test::check_family({"qwen3_vl"});
}
