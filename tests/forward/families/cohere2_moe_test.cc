#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("cohere2_moe: as in transformers") {
  kvcal::test::check_family({"cohere2_moe"});
}
