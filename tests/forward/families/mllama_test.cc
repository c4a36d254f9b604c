#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("mllama: as in transformers") {
  kvcal::test::check_family({"mllama"});
}
