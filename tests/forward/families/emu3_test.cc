#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("emu3: as in transformers") {
  kvcal::test::check_family({"emu3"});
}
