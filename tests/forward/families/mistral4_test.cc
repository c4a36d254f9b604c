#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("mistral4: as in transformers") {
  kvcal::test::check_family({"mistral4"});
}
