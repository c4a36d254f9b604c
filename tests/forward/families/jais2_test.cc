#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("jais2: as in transformers") {
  kvcal::test::check_family({"jais2"});
}
