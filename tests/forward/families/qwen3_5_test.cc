#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("qwen3_5: as in transformers") {
  kvcal::test::check_family({"qwen3_5", "qwen3_5_text"});
}
