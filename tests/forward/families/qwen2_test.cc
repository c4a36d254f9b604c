#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("qwen2: as in transformers") {
  kvcal::test::check_family({"qwen2", "qwen2_window"});
}
