#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("flex_olmo: as in transformers") {
  kvcal::test::check_family({"flex_olmo"});
}
