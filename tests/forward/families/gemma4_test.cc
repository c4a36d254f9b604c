#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("gemma4: as in transformers") {
  kvcal::test::check_family({"gemma4_e2b", "gemma4_31b", "gemma4_26b", "gemma4_multimodal"});
}
