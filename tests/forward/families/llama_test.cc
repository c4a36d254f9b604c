#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("llama: as in transformers") {
  kvcal::test::check_family({"llama", "llama_biased_v5", "llama_rope_dynamic", "llama_rope_linear",
                             "llama_rope_llama3", "llama_rope_yarn", "llama_tied_bf16"});
}
