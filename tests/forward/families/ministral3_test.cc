#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("ministral3: as in transformers") {
  kvcal::test::check_family({"ministral3"});
}
