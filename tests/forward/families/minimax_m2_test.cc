#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("minimax_m2: as in transformers") {
  kvcal::test::check_family({"minimax_m2"});
}
