#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("cohere: as in transformers") {
  kvcal::test::check_family({"cohere", "cohere_qk_norm"});
}
