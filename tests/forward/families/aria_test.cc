#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("aria: as in transformers") {
  kvcal::test::check_family({"aria", "aria_text"});
}
