#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("solar_open: as in transformers") {
  kvcal::test::check_family({"solar_open"});
}
