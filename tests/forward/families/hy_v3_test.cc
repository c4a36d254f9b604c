#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("hy_v3: as in transformers") {
  kvcal::test::check_family({"hy_v3"});
}
