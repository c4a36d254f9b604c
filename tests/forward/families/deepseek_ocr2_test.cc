#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("deepseek_ocr2: as in transformers") {
  kvcal::test::check_family({"deepseek_ocr2"});
}
