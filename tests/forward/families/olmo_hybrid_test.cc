#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("olmo_hybrid: as in transformers") {
  kvcal::test::check_family({"olmo_hybrid", "olmo_hybrid_saved"});
}
