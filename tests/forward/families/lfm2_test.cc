#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("lfm2: as in transformers") {
  kvcal::test::check_family({"lfm2"});
}
