// K, V and their input that a device keeps from the pass that observes them to the pass that ends
// the layer.
#include "forward/memory_plan.h"
#include "forward/support/forward_run.h"
#include "support/catch.h"

#ifdef KVCAL_TEST_SIMULATED_GPU
#include "simulator/simulator.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;
using kvcal::test::RunMode;

namespace {

struct Run {
  std::string seen;
  int64_t launches = 0;
};

/// kept_batches: what the memory has room for beside all else; nullopt: no limit.
Run run_with_room(const std::string& name, RunMode mode, const ObservationRequest& request,
                  std::optional<uint64_t> kept_batches) {
  ModelFixture fixture(name, "simulated");
  const ModelConfig& config = fixture.config;
  const FixtureSamples samples(fixture);
  LayerwiseOptions options{.batch_tokens = 1, .observation = request};  // of the longest sample
  if (kept_batches) {
    const std::vector<int64_t> lengths = samples.lengths();
    const int64_t longest = std::ranges::max(lengths);
    uint64_t tokens = 0;
    for (const int64_t length : lengths) tokens += static_cast<uint64_t>(length);
    const LayerRunner runner(config, *fixture.backend, options.compute_type, longest);
    options.memory_limit =
        memory_needs(config, fixture.weights, *fixture.backend, options, lengths)
            .with_batch(longest) +
        tokens * static_cast<uint64_t>(config.carried_width(longest)) * sizeof(float) +
        2 * *kept_batches * runner.kept_bytes(longest);
  }
  SilentDiagnostics silent;
  LayerwiseForward forward(config, fixture.weights, *fixture.backend, samples.spans(), options,
                           silent);
  gpu::simulator::count_anew();
  Run run{.seen = test::run_layers(forward, config, mode, request)};
  run.launches = gpu::simulator::counts().launches;
  return run;
}

}  // namespace

TEST_CASE("a device that keeps K, V and their input sees what one without room sees") {
  const ObservationRequest amax{.linears = LinearDetail::kAmax};
  // A norm behind RoPE, a latent cache, a mixer beside attention, experts, shared K and V, chunks.
  for (const std::string& name :
       std::vector<std::string>{"llama", "olmo2", "deepseek_v3", "falcon_h1", "qwen3_moe",
                                "gemma4_e2b", "llama4", "gemma3n_text", "glm5_next", "kimi_k3"})
    for (const RunMode mode : {RunMode::kQuantized, RunMode::kExact})
      for (const ObservationRequest& request : {amax, test::kObserveAll}) {
        INFO(name);
        const Run none = run_with_room(name, mode, request, 0);
        CHECK(none.seen.size() > 1000);
        for (const std::optional<uint64_t> room :
             {std::optional<uint64_t>{2}, std::optional<uint64_t>{}}) {
          const bool same = run_with_room(name, mode, request, room).seen == none.seen;
          CHECK(same);
        }
      }
}

TEST_CASE("what is kept is not made again, batch by batch while there is room") {
  const Run none = run_with_room("llama", RunMode::kQuantized, {}, 0);
  const Run two = run_with_room("llama", RunMode::kQuantized, {}, 2);
  const Run all = run_with_room("llama", RunMode::kQuantized, {}, std::nullopt);
  const ModelFixture fixture("llama");
  const int64_t ended = fixture.config.num_hidden_layers - 1;
  // A norm and a product, for each of five batches: the second holds two samples.
  CHECK(none.launches - all.launches == 2 * 5 * ended);
  CHECK(none.launches - two.launches == 2 * 2 * ended);
}

#endif
