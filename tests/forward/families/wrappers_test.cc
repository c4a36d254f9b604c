// Multimodal checkpoints around a decoder that has a test of its own.
#include "forward/support/family_check.h"
#include "support/catch.h"

TEST_CASE("wrappers: as in transformers") {
  kvcal::test::check_family({"fuyu", "idefics3", "internvl", "kimi_k25", "lfm2_vl", "llava",
                             "llava_next", "llava_onevision", "mistral3", "smolvlm"});
}
