#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("lfm2_moe: as in transformers") {
  kvcal::test::check_family({"lfm2_moe"});
}
