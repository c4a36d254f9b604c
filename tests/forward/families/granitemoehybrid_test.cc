#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("granitemoehybrid: as in transformers") {
  kvcal::test::check_family({"granitemoehybrid", "granitemoehybrid_moe"});
}
