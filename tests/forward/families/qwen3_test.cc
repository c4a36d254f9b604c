#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("qwen3: as in transformers") {
  kvcal::test::check_family({"qwen3"});
}
