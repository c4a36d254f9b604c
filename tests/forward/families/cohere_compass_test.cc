#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("cohere_compass: as in transformers") {
  kvcal::test::check_family({"cohere_compass", "cohere_compass_text"});
}
