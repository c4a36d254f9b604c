#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("ernie4_5_moe: as in transformers") {
  kvcal::test::check_family({"ernie4_5_moe"});
}
