#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("gpt2: as in transformers") {
  kvcal::test::check_family({"gpt2"});
}
