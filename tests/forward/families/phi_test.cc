#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("phi: as in transformers") {
  kvcal::test::check_family({"phi"});
}
