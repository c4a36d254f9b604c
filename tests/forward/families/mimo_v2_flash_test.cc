#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("mimo_v2_flash: as in transformers") {
  kvcal::test::check_family({"mimo_v2_flash"});
}
