#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("hunyuan_vl: as in transformers") {
  kvcal::test::check_family({"hunyuan_vl"});
}
