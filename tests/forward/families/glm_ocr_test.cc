#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("glm_ocr: as in transformers") {
  kvcal::test::check_family({"glm_ocr"});
}
