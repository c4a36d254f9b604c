#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("internlm3: as in transformers") {
  kvcal::test::check_family({"internlm3"});
}
