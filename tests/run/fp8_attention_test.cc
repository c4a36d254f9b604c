#include "run/loaded_model.h"

#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;

TEST_CASE("fp8_attention: scales are those that vLLM holds") {
  const test::ModelFixture fixture("llama");
  const AttentionSizes& sizes = fixture.config.attention(0);
  REQUIRE(sizes.heads > sizes.kv_heads);
  std::vector<LayerKvScales> scales(static_cast<size_t>(fixture.config.num_hidden_layers),
                                    {.k = {Scale{0.5f}}, .v = {Scale{0.5f}}});
  for (int64_t head = 0; head < sizes.heads; ++head)
    scales[0].q.push_back({1.0f + static_cast<float>(head)});
  const auto served = with_fp8_attention(scales, KvDType::kFp8E4m3, fixture.config);
  const int64_t group = sizes.heads / sizes.kv_heads;
  for (int64_t head = 0; head < sizes.heads; ++head)
    CHECK(served[0].q[static_cast<size_t>(head)].value ==
          static_cast<float>((head / group + 1) * group));
  REQUIRE(served[1].q.size() == 1);
  CHECK(served[1].q[0].value == 1.0f);
  for (const LayerKvScales& layer : served) CHECK(layer.weights->value == 1.0f / 256.0f);
}

TEST_CASE("fp8_attention: latent attention is refused") {
  const test::ModelFixture fixture("deepseek_v3");
  CHECK(test::message_of([&] { with_fp8_attention({}, KvDType::kFp8E4m3, fixture.config); }) ==
        "the model keeps a latent (MLA), whose FP8 attention is not simulated");
}
