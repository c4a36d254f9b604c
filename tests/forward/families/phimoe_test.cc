#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("phimoe: as in transformers") {
  kvcal::test::check_family({"phimoe"});
}
