#include "forward/layer_context.h"

#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/pretending_backend.h"

namespace kvcal {
namespace {

TEST_CASE("activations: what is reserved is what the memory plan counts") {
  for (const std::string name : {"llama", "mixtral", "deepseek_v3", "deepseek_v32", "gpt2", "jamba",
                                 "glm5_next", "kimi_k3"}) {
    const test::ModelFixture fixture(name);
    for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
      INFO(name << " " << name_of(type));
      test::PretendingBackend backend(test::make_backend("cpu"));
      Activations activations(fixture.config, backend, type);
      CHECK(backend.allocated == 0);
      for (const Reserved group : {Reserved::kBatch, Reserved::kReadRows})
        activations.reserve(group, 7);
      CHECK(backend.allocated == 7 * Activations::bytes_per_token(fixture.config, backend, type));
      activations.reserve(Reserved::kQuantizedQueries, 7);
      CHECK(backend.allocated == 7 * Activations::bytes_per_token(fixture.config, backend, type,
                                                                  {.quantizes_queries = true}));
      activations.reserve(Reserved::kIndexed, 7);
      CHECK(backend.allocated ==
            7 * Activations::bytes_per_token(fixture.config, backend, type,
                                             {.quantizes_queries = true, .selects_keys = true}));
    }
  }
}

TEST_CASE("activations: buffers grow and do not shrink") {
  const test::ModelFixture fixture("deepseek_v3");
  test::PretendingBackend backend(test::make_backend("cpu"));
  Activations activations(fixture.config, backend, ComputeType::kFloat32);
  CHECK(activations.keys.size() == 0);
  activations.reserve(Reserved::kReadRows, 5);
  const size_t bytes = activations.keys.size();
  CHECK(bytes ==
        5 * static_cast<size_t>(fixture.config.attention(0).query_width()) * sizeof(float));
  activations.reserve(Reserved::kReadRows, 3);
  CHECK(activations.keys.size() == bytes);
  activations.reserve(Reserved::kReadRows, 6);
  CHECK(activations.keys.size() == bytes / 5 * 6);
}

}  // namespace
}  // namespace kvcal
