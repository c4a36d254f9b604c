#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("nanochat: as in transformers") {
  kvcal::test::check_family({"nanochat", "nanochat_yarn"});
}
