#include "run/scales_from_statistics.h"
#include "run/scored_scales.h"

#include "support/catch.h"

using namespace kvcal;

namespace {

LayerCacheLoss loss_of(int64_t layer, double clipped, double to_zero) {
  const CodeErrors codes{.values = 1000, .clipped = clipped, .to_zero = to_zero};
  return {.layer = layer,
          .k = {.codes = codes, .channel_error = 0.01},
          .v = {.codes = {.values = 1000}, .channel_error = 0}};
}

AdvisedCache advised(const std::string& name, uint64_t bytes, double clipped) {
  return {.label = {.name = name, .bytes_per_token = bytes},
          .layers = {loss_of(0, 0, 1), loss_of(1, clipped, 0)}};
}

}  // namespace

TEST_CASE("caches text: advice ranks caches, and lists their layers") {
  const std::vector<AdvisedCache> caches{advised("fp8, by layer", 128, 0),
                                         advised("nvfp4, 1.0", 72, 20)};
  CHECK(advice_text(caches, 4) ==
        "caches by what K and V are expected to lose, the least first:\n"
        "        cache  bytes a    K error  V error         K        V      K to  V to\n"
        "                 token                       clipped  clipped      zero  zero\n"
        "fp8, by layer      128  10.0000 %        0         0        0  0.0500 %     0\n"
        "   nvfp4, 1.0       72  10.0000 %        0  1.0000 %        0  0.0500 %     0\n"
        "by layer:\n"
        "        cache  layer    K error  V error         K        V      K to  V to zero\n"
        "                                           clipped  clipped      zero\n"
        "fp8, by layer      0  10.0000 %        0         0        0  0.1000 %          0\n"
        "fp8, by layer      1  10.0000 %        0         0        0         0          0\n"
        "   nvfp4, 1.0      0  10.0000 %        0         0        0  0.1000 %          0\n"
        "   nvfp4, 1.0      1  10.0000 %        0  2.0000 %        0         0          0\n");
}

TEST_CASE("caches text: too many layers are left out of advice") {
  const std::string text = advice_text({advised("fp8, by layer", 128, 0)}, 1);
  CHECK(text.ends_with("\n(--verbose lists each layer of each cache: 2 rows)\n"));
}

TEST_CASE("caches text: measured caches have bytes a token beside KL") {
  ScoredCache cache{.label = {.name = "nvfp4, 1.0", .bytes_per_token = 72}, .result = {}};
  cache.result.num_tokens = 1000;
  cache.result.kl_mean = 0.01;
  cache.result.kl_stderr = 0.001;
  cache.result.perplexity_increase = 0.0186;
  cache.result.top1_agreement = 0.9925;
  CHECK(caches_text({cache}) ==
        "     cache  bytes a token   mean KL  standard  perplexity  same top     verdict\n"
        "                                        error\n"
        "nvfp4, 1.0             72  0.010000  0.001000    +1.860 %   99.25 %  noticeable\n");
}
