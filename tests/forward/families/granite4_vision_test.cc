#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("granite4_vision: as in transformers") {
  kvcal::test::check_family({"granite4_vision"});
}
