#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("mixtral: as in transformers") {
  kvcal::test::check_family({"mixtral"});
}
