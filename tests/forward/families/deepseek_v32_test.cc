#include "forward/decoder.h"
#include "forward/support/family_check.h"
#include "support/catch.h"

using namespace kvcal;

TEST_CASE("deepseek_v32: as in transformers") {
  test::check_family({"deepseek_v32"});
}

TEST_CASE("deepseek_v32: a sequence of more tokens than sparse attention selects is refused") {
  test::ModelFixture fixture("deepseek_v32");
  const auto most = static_cast<size_t>(fixture.config.attended_tokens);
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 2 * static_cast<int64_t>(most));
  decoder.step(std::vector<TokenId>(most, 7), cache);
  CHECK_THROWS_WITH(decoder.step(std::vector<TokenId>{7}, cache),
                    Catch::Contains("a sequence of 65 tokens is longer than the 64"));
}
