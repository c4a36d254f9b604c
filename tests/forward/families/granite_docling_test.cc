#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("granite_docling: as in transformers") {
  kvcal::test::check_family({"granite_docling"});
}
