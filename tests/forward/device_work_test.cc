// What a forward pass asks of a device, counted on the simulated one.
#include "forward/support/forward_run.h"
#include "support/catch.h"

#ifdef KVCAL_TEST_SIMULATED_GPU
#include "simulator/simulator.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;

namespace {

/// Waits of the host for the device in each layer, of one batch.
std::vector<int64_t> waits_of_layers(const std::string& name) {
  ModelFixture fixture(name, "simulated");
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                           {.batch_tokens = 1000}, silent);
  std::vector<int64_t> waits;
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
    gpu::simulator::count_anew();
    forward.observe_and_advance_exact(layer);
    waits.push_back(gpu::simulator::counts().waits);
  }
  return waits;
}

}  // namespace

TEST_CASE("the choice of experts makes the host wait once a layer and batch") {
  const int64_t without = std::ranges::max(waits_of_layers("llama"));  // for what was observed
  for (const std::string& name :
       std::vector<std::string>{"mixtral", "qwen3_moe", "deepseek_v3", "llama4", "phimoe"}) {
    INFO(name);
    CHECK(std::ranges::max(waits_of_layers(name)) == without + 1);
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
