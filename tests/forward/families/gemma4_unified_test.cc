#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("gemma4_unified: as in transformers") {
  kvcal::test::check_family({"gemma4_unified_text", "gemma4_unified"});
}
