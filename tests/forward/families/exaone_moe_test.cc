#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("exaone_moe: as in transformers") {
  kvcal::test::check_family({"exaone_moe"});
}
