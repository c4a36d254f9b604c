#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "forward/layer_prefetch.h"
#include "forward/memory_plan.h"
#include "forward/support/forward_run.h"
#include "support/catch.h"
#include "support/pretending_backend.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;

namespace {

/// Notes which threads pack, and fails with the n-th matrix.
class WatchedBackend : public test::PretendingBackend {
 public:
  explicit WatchedBackend(ModelFixture& fixture) : PretendingBackend(std::move(fixture.backend)) {}
  std::unique_ptr<PackedMatrix> pack(std::span<const TensorView> parts, ComputeType type) override {
    const std::lock_guard lock(mutex_);
    threads.insert(std::this_thread::get_id());
    if (++num_packed == fails_at) fail("no room for a matrix");
    return PretendingBackend::pack(parts, type);
  }

  std::set<std::thread::id> threads;
  int64_t num_packed = 0, fails_at = -1;

 private:
  std::mutex mutex_;
};

WatchedBackend& watch(ModelFixture& fixture) {
  auto watched = std::make_unique<WatchedBackend>(fixture);
  WatchedBackend& result = *watched;
  fixture.backend = std::move(watched);
  return result;
}

std::string run(ModelFixture& fixture) {
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                           {.batch_tokens = 40}, silent);
  return test::run_layers(forward, fixture.config, test::RunMode::kQuantized);
}

}  // namespace

TEST_CASE("each layer is packed once, the next one beside the work, none past the last") {
  for (const std::string name : {"llama", "jamba", "mixtral"}) {
    INFO(name);
    ModelFixture alone(name), beside(name);
    WatchedBackend& in_turn = watch(alone);
    in_turn.packs_in_thread = false;
    WatchedBackend& ahead = watch(beside);
    const bool same = run(alone) == run(beside);
    CHECK(same);
    CHECK(in_turn.num_packed == ahead.num_packed);
    CHECK(in_turn.threads == std::set{std::this_thread::get_id()});
    CHECK(ahead.threads.size() > 1);
  }
}

TEST_CASE("a layer that cannot be packed ahead is an error when it is its turn") {
  for (const int64_t fails_at : {1, 4, 6}) {
    ModelFixture fixture("llama");
    watch(fixture).fails_at = fails_at;
    std::string message;
    try {
      run(fixture);
    } catch (const Error& error) {
      message = error.message();
    }
    CHECK(message == "no room for a matrix");
  }
}

TEST_CASE("layers in any order, with any parts, are what was asked for") {
  ModelFixture fixture("llama");
  WatchedBackend& backend = watch(fixture);
  {
    Backend* const one = &backend;
    LayerPrefetch layers(fixture.weights, fixture.config, std::span(&one, 1),
                         ComputeType::kFloat32);
    const auto bring = [&](int64_t layer, LayerParts parts) -> const PackedLayer& {
      return layers.bring(layer, parts).front();
    };
    CHECK(layers.index() == -1);
    CHECK(bring(1, LayerParts::kAll).output.matrix);
    CHECK(bring(0, LayerParts::kKeyValue).key_value.matrix);
    CHECK(layers.index() == 0);
    // Of layer 1, the last that attends, only K and V come ahead.
    CHECK(bring(1, LayerParts::kAll).output.matrix);
    CHECK(bring(0, LayerParts::kAll).output.matrix);
    CHECK_FALSE(bring(1, LayerParts::kKeyValue).output.matrix);
    bring(0, LayerParts::kAll);  // its end waits for layer 1
  }
  CHECK(backend.allocated == 0);
}

TEST_CASE("two packed layers count under the memory limit where one is packed ahead") {
  ModelFixture host("llama"), device("llama");
  watch(device);
  const FixtureSamples samples(host);
  SilentDiagnostics silent;
  const auto least = [&](const ModelFixture& fixture) {
    const std::vector<int64_t> lengths = samples.lengths();
    return memory_needs(fixture.config, fixture.weights, *fixture.backend, {}, lengths)
        .with_batch(std::ranges::max(lengths));
  };
  const uint64_t layer = packed_layer_bytes(host.config, ComputeType::kFloat32);
  const auto fits = [&](ModelFixture& fixture, uint64_t limit) {
    try {
      LayerwiseForward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                       {.memory_limit = limit, .scratch_folder = fs::temp_directory_path()},
                       silent);
    } catch (const Error&) {
      return false;
    }
    return true;
  };
  CHECK(fits(host, least(host)));
  CHECK_FALSE(fits(host, least(host) - 1));
  CHECK(least(device) > 2 * layer);
  CHECK_FALSE(fits(device, least(device) - 1));
  CHECK(fits(device, least(device)));
}
