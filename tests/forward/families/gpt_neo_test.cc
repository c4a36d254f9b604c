#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("gpt_neo: as in transformers") {
  kvcal::test::check_family({"gpt_neo"});
}
