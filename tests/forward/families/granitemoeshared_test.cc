#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("granitemoeshared: as in transformers") {
  kvcal::test::check_family({"granitemoeshared"});
}
