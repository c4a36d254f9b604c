#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("granitemoe_swa: as in transformers") {
  kvcal::test::check_family({"granitemoe_swa"});
}
