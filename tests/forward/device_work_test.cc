// What a forward pass asks of a device, counted on the simulated one.
#include "forward/support/forward_run.h"
#include "support/catch.h"

#ifdef KVCAL_TEST_SIMULATED_GPU
#include "simulator/simulator.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;

namespace {

/// Waits of the host for the device in each layer, the draft among them, of one batch.
std::vector<int64_t> waits_of_layers(const ModelConfig& config, const Weights& weights,
                                     Backend& backend,
                                     std::span<const std::span<const TokenId>> samples) {
  SilentDiagnostics silent;
  LayerwiseForward forward(config, weights, backend, samples, {.batch_tokens = 1000}, silent);
  std::vector<int64_t> waits;
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    gpu::simulator::count_anew();
    if (config.is_draft(layer))
      forward.observe(layer);
    else if (config.has_attention(layer))
      forward.observe_and_advance_exact(layer);
    else
      forward.advance_without_attention(layer);
    waits.push_back(gpu::simulator::counts().waits);
  }
  return waits;
}
int64_t most_waits(ModelFixture& fixture) {
  const FixtureSamples samples(fixture);
  return std::ranges::max(
      waits_of_layers(fixture.config, fixture.weights, *fixture.backend, samples.spans()));
}
int64_t most_waits(const std::string& name) {
  ModelFixture fixture(name, "simulated");
  return most_waits(fixture);
}

}  // namespace

TEST_CASE("the choice of experts makes the host wait once a layer and batch") {
  const int64_t without = most_waits("llama");  // for what was observed
  for (const std::string& name :
       std::vector<std::string>{"mixtral", "qwen3_moe", "deepseek_v3", "llama4", "phimoe"}) {
    INFO(name);
    CHECK(most_waits(name) == without + 1);
  }
}

TEST_CASE("latent and recurrent layers, chosen keys and inputs of layers do not make it wait") {
  const int64_t without = most_waits("llama");
  for (const std::string& name :
       std::vector<std::string>{"minicpm3", "mistral4", "qwen3_5_text", "olmo_hybrid", "falcon_h1",
                                "bamba", "lfm2", "nemotron_h", "deepseek_v32_sparse",
                                "gemma3n_text", "gemma4_e2b", "inkling_text", "qwen4_exp"}) {
    INFO(name);
    ModelFixture fixture(name, "simulated");
    CHECK(most_waits(fixture) <= without + (fixture.config.moe.num_experts > 0 ? 1 : 0));
  }
}

TEST_CASE("a draft layer makes the host wait no more often than the model's layers") {
  for (const std::string& name : std::vector<std::string>{"glm4_moe", "deepseek_v3", "qwen3_5"}) {
    INFO(name);
    const ModelDir folder(test::draft_fixture(name));
    const ModelConfig config = test::config_with_draft(folder);
    REQUIRE(config.has_draft());
    const Weights weights(folder, config);
    const auto backend = test::make_backend("simulated", 2);
    const std::vector<TokenId> ids{3, 1, 4, 1, 5};
    const std::span<const TokenId> sample(ids);
    const std::vector<int64_t> waits = waits_of_layers(config, weights, *backend, {&sample, 1});
    CHECK(waits.back() <= *std::max_element(waits.begin(), waits.end() - 1));
  }
}

TEST_CASE("an embedding of fewer rows than tokens is copied to a device once") {
  for (const std::string& name : std::vector<std::string>{"llama", "gemma2"}) {
    ModelFixture fixture(name, "simulated");
    const TensorView& table = fixture.weights.at(Role::kEmbedding);
    const auto sample = std::span(fixture.ids).first(2);
    const auto copied = [&](int64_t count) {
      const std::vector<std::span<const TokenId>> samples(static_cast<size_t>(count), sample);
      SilentDiagnostics silent;
      gpu::simulator::count_anew();
      const LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples,
                                     {.batch_tokens = 64}, silent);
      return gpu::simulator::counts().copied_bytes;
    };
    const int64_t enough = table.shape[0];  // twice as many tokens as rows
    const uint64_t rows = table.bytes.size() / static_cast<uint64_t>(table.shape[0]);
    INFO(name);
    // Behind the table a token costs its id and place, not its row.
    CHECK(copied(2 * enough) - copied(enough) < static_cast<uint64_t>(2 * enough) * rows / 2);
    CHECK(copied(enough / 4) > static_cast<uint64_t>(2 * (enough / 4)) * rows);
    CHECK(copied(enough) > table.bytes.size());
  }
}

#endif
