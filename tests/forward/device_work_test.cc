// What a forward pass asks of a device, counted on the simulated one.
#include "forward/support/forward_run.h"
#include "support/catch.h"

#ifdef KVCAL_TEST_SIMULATED_GPU
#include "simulator/simulator.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

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
