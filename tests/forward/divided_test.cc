#include <filesystem>
#include <map>
#include <numeric>

#include "forward/divided_forward.h"
#include "forward/support/forward_run.h"
#include "support/catch.h"
#include "support/pretending_backend.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;
using kvcal::test::RunMode;

namespace {

std::string run_divided(const std::string& name, const std::string& backend_name, size_t count,
                        RunMode mode, const ObservationRequest& request = {},
                        bool is_device = false) {
  ModelFixture fixture(name);
  std::vector<std::unique_ptr<Backend>> owned;
  std::vector<Backend*> backends;
  for (size_t i = 0; i < count; ++i) {
    owned.push_back(kBackends.at(backend_name)({.num_threads = 1}));
    if (is_device) owned.back() = std::make_unique<test::PretendingBackend>(std::move(owned[i]));
    backends.push_back(owned.back().get());
  }
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  DividedForward forward(fixture.config, fixture.weights, backends, samples.spans(),
                         {.batch_tokens = 20}, silent);
  return test::run_layers(forward, fixture.config, mode, request);
}

class Warnings : public Diagnostics {
 public:
  void warn(const std::string& message) override { messages.push_back(message); }
  void progress(std::string_view, int64_t, int64_t, std::string_view) override {}
  std::vector<std::string> messages;
};

/// Counts how often each layer's bytes are used.
class CountedLayers : public LayerBytes {
 public:
  void will_need(int64_t) override {}
  void bring(int64_t layer) override { ++brought[layer]; }
  void drop(int64_t layer) noexcept override { ++dropped[layer]; }
  std::map<int64_t, int> brought, dropped;
};

class LastProgress : public Diagnostics {
 public:
  void warn(const std::string&) override {}
  void progress(std::string_view, int64_t now, int64_t all, std::string_view) override {
    CHECK(now >= done);
    done = now;
    total = all;
  }
  int64_t done = 0, total = 0;
};

}  // namespace

TEST_CASE("two and three backends see the bytes that one sees") {
  ObservationRequest amax{.linears = LinearDetail::kAmax}, all_experts = test::kObserveAll;
  all_experts.all_experts = true;
  // Dense; experts; a latent cache; windows and soft-caps; dynamic and long ropes; hybrids;
  // streams and layers' own inputs.
  for (const std::string name :
       {"llama", "mixtral", "deepseek_v3", "gemma2", "nemotron_h", "jamba", "qwen3_next",
        "glm_moe_dsa_sparse", "gemma3n_text", "glm5_next", "kimi_k3", "qwen4_exp"})
    for (const auto& [mode, request] : {std::pair{RunMode::kQuantized, test::kObserveAll},
                                        {RunMode::kQuantized, ObservationRequest{}},
                                        {RunMode::kExact, amax},
                                        {RunMode::kExactInOnePass, all_experts}}) {
      INFO(name);
      const std::string one = run_divided(name, "cpu", 1, mode, request);
      CHECK(one.size() > 1000);
      for (const size_t count : {2, 3, 9}) {  // 9: more than there are samples
        INFO(count << " backends");
        const bool same = run_divided(name, "cpu", count, mode, request) == one;
        CHECK(same);
      }
      const bool same_on_devices = run_divided(name, "cpu", 2, mode, request, true) == one;
      CHECK(same_on_devices);
      if (mode != RunMode::kQuantized) continue;
      const bool same_on_reference = run_divided(name, "reference", 3, mode, request) ==
                                     run_divided(name, "reference", 1, mode, request);
      CHECK(same_on_reference);
    }
}

TEST_CASE("each layer is read and packed once for all devices") {
  for (const bool is_device : {false, true})
    for (const size_t count : {1, 3, 9}) {  // 9: more than there are samples
      INFO(count << (is_device ? " devices" : " hosts"));
      ModelFixture fixture("llama");
      std::vector<std::unique_ptr<Backend>> owned;
      std::vector<Backend*> backends;
      for (size_t i = 0; i < count; ++i) {
        owned.push_back(kBackends.at("cpu")({.num_threads = 1}));
        if (is_device) owned[i] = std::make_unique<test::PretendingBackend>(std::move(owned[i]));
        backends.push_back(owned[i].get());
      }
      const FixtureSamples samples(fixture);
      CountedLayers bytes;
      SilentDiagnostics silent;
      DividedForward forward(fixture.config, fixture.weights, backends, samples.spans(),
                             {.batch_tokens = 1, .layer_bytes = &bytes}, silent);
      test::run_layers(forward, fixture.config, RunMode::kQuantized);
      std::map<int64_t, int> once;
      for (int64_t i = 0; i < fixture.config.num_hidden_layers; ++i) once[i] = 1;
      CHECK(bytes.brought == once);
      CHECK(bytes.dropped == once);
    }
}

TEST_CASE("samples are divided by tokens, in order, none left out") {
  const auto divide = [](std::vector<int64_t> lengths, size_t ranges) {
    return DividedForward::divide(lengths, ranges);
  };
  CHECK(divide({5, 5, 5, 5}, 2) == std::vector<size_t>{0, 2, 4});
  CHECK(divide({5, 5, 5, 5}, 1) == std::vector<size_t>{0, 4});
  CHECK(divide({100, 1, 1, 1}, 2) == std::vector<size_t>{0, 1, 4});
  CHECK(divide({1, 1, 1, 100}, 2) == std::vector<size_t>{0, 3, 4});
  CHECK(divide({7}, 3) == std::vector<size_t>{0, 1});
  CHECK(divide({2, 2}, 3).size() <= 4);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 500; ++i) lengths.push_back(1 + (i * 37) % 101);
  for (size_t ranges = 1; ranges <= 16; ++ranges) {
    const auto begins = divide(lengths, ranges);
    REQUIRE(begins.size() == ranges + 1);
    const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    for (size_t i = 0; i < ranges; ++i) {
      int64_t tokens = 0;
      for (size_t at = begins[i]; at < begins[i + 1]; ++at) tokens += lengths[at];
      CHECK(std::abs(tokens - total / static_cast<int64_t>(ranges)) <= 101);
    }
  }
}

TEST_CASE("an error on one device ends the pass with its message, whatever the others do") {
  for (const int64_t products : {0, 3, 9}) {
    ModelFixture fixture("llama");
    test::PretendingBackend first(kBackends.at("cpu")({.num_threads = 1}));
    test::FailingBackend second(kBackends.at("cpu")({.num_threads = 1}), products);
    const std::vector<Backend*> backends{&first, &second};
    const FixtureSamples samples(fixture);
    SilentDiagnostics silent;
    DividedForward forward(fixture.config, fixture.weights, backends, samples.spans(),
                           {.batch_tokens = 1}, silent);
    std::string message;
    try {
      test::run_layers(forward, fixture.config, RunMode::kQuantized);
    } catch (const Error& error) {
      message = error.message();
    }
    CHECK(message == "the device is gone");
  }
}

TEST_CASE("a warning of the devices' operations is told once, while they run") {
  ModelFixture fixture("llama");
  test::PretendingBackend one(kBackends.at("cpu")({.num_threads = 1}));
  test::PretendingBackend two(kBackends.at("cpu")({.num_threads = 1}));
  one.warnings = two.warnings = {"attention is slow"};
  const std::vector<Backend*> backends{&one, &two};
  const FixtureSamples samples(fixture);
  Warnings told;
  DividedForward forward(fixture.config, fixture.weights, backends, samples.spans(),
                         {.batch_tokens = 1}, told);
  test::run_layers(forward, fixture.config, RunMode::kQuantized);
  CHECK(told.messages == std::vector<std::string>{"attention is slow"});
}

TEST_CASE("progress of several devices is one line that ends at all tokens") {
  ModelFixture fixture("llama");
  const auto one = kBackends.at("cpu")({.num_threads = 1});
  const auto two = kBackends.at("cpu")({.num_threads = 1});
  const std::vector<Backend*> backends{one.get(), two.get()};
  const FixtureSamples samples(fixture);
  LastProgress progress;
  DividedForward forward(fixture.config, fixture.weights, backends, samples.spans(),
                         {.batch_tokens = 1}, progress);
  test::run_layers(forward, fixture.config, RunMode::kExactInOnePass);
  CHECK(progress.done == forward.num_tokens());
  CHECK(progress.total == forward.num_tokens());
}

#ifdef KVCAL_TEST_SIMULATED_GPU

namespace {

/// A pass over so many simulated devices.
struct SimulatedPass {
  SimulatedPass(ModelFixture& of, size_t count) : fixture(of), samples(of) {
    for (size_t i = 0; i < count; ++i) {
      owned.push_back(
          make_gpu_backend({.num_threads = 2, .device_index = static_cast<int>(i % 2)}));
      backends.push_back(owned.back().get());
    }
    forward =
        std::make_unique<DividedForward>(fixture.config, fixture.weights, backends, samples.spans(),
                                         LayerwiseOptions{.batch_tokens = 20}, silent);
  }
  std::string run() {
    return test::run_layers(*forward, fixture.config, RunMode::kQuantized, test::kObserveAll);
  }
  ModelFixture& fixture;
  FixtureSamples samples;
  SilentDiagnostics silent;
  std::vector<std::unique_ptr<Backend>> owned;
  std::vector<Backend*> backends;
  std::unique_ptr<DividedForward> forward;
};

int64_t num_threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

}  // namespace

TEST_CASE("more devices pin no more memory for weights, and see the same bytes") {
  for (const std::string name : {"llama", "deepseek_v3_fp8", "gpt_oss"}) {
    INFO(name);
    ModelFixture fixture(name);
    const size_t before = gpu::simulator::pinned_bytes();
    SimulatedPass one(fixture, 1);
    const std::string seen = one.run();
    const size_t of_one = gpu::simulator::pinned_bytes() - before;
    SimulatedPass three(fixture, 3);
    const bool same = three.run() == seen;
    CHECK(same);
    const size_t of_three = gpu::simulator::pinned_bytes() - before - of_one;
    constexpr size_t kSmall = size_t{8} << 20;  // of a device, for what is not weights
    CHECK(of_one > kSmall);
    CHECK(of_three <= of_one + 2 * kSmall);
  }
}

TEST_CASE("a device that is lost while it packs or computes leaves nothing behind") {
  ModelFixture fixture("llama");
  const size_t before = gpu::simulator::pinned_bytes();
  const int64_t threads = num_threads_of_process();
  int64_t failed = 0;
  for (int copies = 0; copies < 200; copies += 7) {
    INFO("after " << copies << " copies");
    std::string message;
    {
      SimulatedPass pass(fixture, 3);
      gpu::simulator::fail_copies_after(copies);
      try {
        pass.run();
      } catch (const Error& error) {
        message = error.message();
      }
      gpu::simulator::fail_copies_after(-1);
    }
    CHECK((message.empty() || message == "simulated: copying: the device is gone"));
    failed += !message.empty();
    CHECK(gpu::simulator::pinned_bytes() == before);
    CHECK(num_threads_of_process() == threads);
  }
  CHECK(failed > 10);
}

#endif
