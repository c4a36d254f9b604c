#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("gemma3: as in transformers") {
  kvcal::test::check_family({"gemma3_text", "gemma3_text_v5", "gemma3_multimodal"});
}
