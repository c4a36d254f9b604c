#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("nemotron_h: as in transformers") {
  kvcal::test::check_family({"nemotron_h"});
}
