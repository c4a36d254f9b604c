#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("gpt_bigcode: as in transformers") {
  kvcal::test::check_family({"gpt_bigcode", "gpt_bigcode_heads"});
}
