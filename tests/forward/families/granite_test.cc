#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("granite: as in transformers") {
  kvcal::test::check_family({"granite"});
}
