#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("phi3: as in transformers") {
  kvcal::test::check_family({"phi3", "phi3_longrope_long", "phi3_longrope_short"});
}
