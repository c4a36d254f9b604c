#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("llama4: as in transformers") {
  kvcal::test::check_family({"llama4", "llama4_yarn", "llama4_wrapped"});
}
