#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("exaone4: as in transformers") {
  kvcal::test::check_family({"exaone4"});
}
