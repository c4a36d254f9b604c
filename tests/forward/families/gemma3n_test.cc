#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("gemma3n: as in transformers") {
  kvcal::test::check_family({"gemma3n_text", "gemma3n"});
}
