#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("olmo2: as in transformers") {
  kvcal::test::check_family({"olmo2"});
}
