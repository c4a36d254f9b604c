#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("paddleocr_vl: as in transformers") {
  kvcal::test::check_family({"paddleocr_vl"});
}
