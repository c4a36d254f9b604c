#include "forward/memory_plan.h"

#include <cmath>
#include <numeric>

#include "forward/layer_prefetch.h"
#include "forward/layer_runner.h"
#include "forward/support/forward_run.h"
#include "support/catch.h"
#include "support/mapped_memory.h"
#include "support/pretending_backend.h"
#include "support/scratch_folder.h"
#include "synth/synthetic.h"

using namespace kvcal;
using test::ModelFixture;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
const std::vector<int64_t> kLengths{7, 30, 12};

MemoryPlan plan_of(const ModelFixture& fixture, const LayerwiseOptions& options) {
  return {fixture.config, fixture.weights, *fixture.backend, options, kLengths};
}

MemoryNeeds needs_of(const ModelFixture& fixture, const LayerwiseOptions& options = {}) {
  return memory_needs(fixture.config, fixture.weights, *fixture.backend, options, kLengths);
}

/// Keeps what it was warned of.
class Warnings : public SilentDiagnostics {
 public:
  void warn(const std::string& message) override { messages.push_back(message); }
  std::vector<std::string> messages;
};

/// A checkpoint whose layers and embedding are some megabytes.
struct LargeModel {
  LargeModel() {
    const Json config = {{"model_type", "llama"},       {"hidden_size", 256},
                         {"intermediate_size", 2048},   {"num_attention_heads", 4},
                         {"num_key_value_heads", 4},    {"num_hidden_layers", 3},
                         {"vocab_size", 4096},          {"max_position_embeddings", 512},
                         {"rms_norm_eps", 1e-5},        {"rope_theta", 10000.0},
                         {"tie_word_embeddings", true}, {"torch_dtype", "float32"}};
    SilentDiagnostics silent;
    write_synthetic_checkpoint(config, {}, folder.path(), silent);
  }
  test::ScratchFolder folder;
};

}  // namespace

TEST_CASE("memory plan: without a limit everything is as the backend likes") {
  const ModelFixture fixture("llama");
  CHECK(plan_of(fixture, {.batch_tokens = 64}).batch_tokens() == 64);
  CHECK(plan_of(fixture, {.batch_tokens = 1}).batch_tokens() == 30);
  CHECK_FALSE(plan_of(fixture, {}).hidden_bytes(30));
  CHECK_FALSE(plan_of(fixture, {}).limit());
}

TEST_CASE("memory plan: the smallest limit is what the error of a smaller one names") {
  for (const std::string name :
       {"llama", "mixtral", "deepseek_v3", "gpt2", "glm5_next", "kimi_k3"}) {
    const ModelFixture fixture(name);
    LayerwiseOptions options{.memory_limit = 1, .process_bytes = 3 * kMiB};
    std::string message;
    try {
      plan_of(fixture, options);
    } catch (const Error& error) {
      message = error.message();
    }
    INFO(message);
    const std::string last = " tokens, which take ";
    const size_t at = message.find(last);
    REQUIRE(at != std::string::npos);
    CHECK(message.starts_with("the memory limit of 1 B cannot hold the program, one layer"));
    CHECK(message.ends_with(" MB"));
    const auto named =
        static_cast<uint64_t>(std::llround(1e6 * std::stod(message.substr(at + last.size()))));
    const uint64_t least = needs_of(fixture, options).with_batch(30);
    CHECK(least > 3 * kMiB);
    CHECK(named >= least);
    CHECK(named < least + 10'000);  // four digits
    options.memory_limit = least - 1;
    CHECK_THROWS_AS(plan_of(fixture, options), Error);
    options.memory_limit = least;
    const MemoryPlan tight = plan_of(fixture, options);
    CHECK(tight.batch_tokens() == 30);
    CHECK(tight.hidden_bytes(30) == 0);
  }
}

TEST_CASE("memory plan: batch and hidden states together stay below the limit") {
  const ModelFixture fixture("llama");
  const MemoryNeeds needs = needs_of(fixture);
  for (const uint64_t more : {0u, 100'000u, 1'000'000u, 10'000'000u}) {
    const uint64_t limit = needs.with_batch(30) + more;
    const MemoryPlan plan = plan_of(fixture, {.batch_tokens = 4096, .memory_limit = limit});
    const int64_t batch = plan.batch_tokens();
    CHECK(batch >= 30);
    CHECK(batch <= 4096);
    CHECK(needs.with_batch(batch) + *plan.hidden_bytes(batch) == limit);
  }
}

TEST_CASE("memory plan: what is observed has room") {
  for (const std::string name : {"llama", "mixtral", "deepseek_v3", "glm5_next", "kimi_k3"}) {
    ModelFixture fixture(name);
    INFO(name);
    const MemoryNeeds none = needs_of(fixture);
    for (const ObservationRequest& request :
         {ObservationRequest{.query = true}, ObservationRequest{.linears = LinearDetail::kAmax},
          ObservationRequest{.linears = LinearDetail::kSamples}, test::kObserveAll}) {
      const MemoryNeeds needs = needs_of(fixture, {.observation = request});
      CHECK(needs.tables > none.tables);
      CHECK((needs.per_token > none.per_token) == request.query);

      test::PretendingBackend backend(test::make_backend("cpu"));
      const test::FixtureSamples samples(fixture);
      SilentDiagnostics silent;
      LayerwiseForward forward(fixture.config, fixture.weights, backend, samples.spans(), {},
                               silent);
      const uint64_t before = backend.allocated;
      forward.request(request);
      CHECK(backend.allocated - before <=
            LinearCollector::bytes(fixture.config, request.linears, samples.spans().size()));
    }
  }
}

TEST_CASE("memory plan: what the process can have is the limit where none is given") {
  const ModelFixture fixture("llama");
  const uint64_t least = needs_of(fixture).with_batch(30);
  const MemoryPlan found = plan_of(fixture, {.process_can_take = least + 5});
  CHECK(found.is_limit_found());
  CHECK(found.limit() == least + 5);
  const MemoryPlan given =
      plan_of(fixture, {.memory_limit = least + 9, .process_can_take = least + 5});
  CHECK_FALSE(given.is_limit_found());
  CHECK(given.limit() == least + 9);
  CHECK_THROWS_WITH(plan_of(fixture, {.process_can_take = 1000}),
                    Catch::Matchers::Contains("the available memory of 1 kB cannot hold"));
}

TEST_CASE("a process that can have little memory says so, and sees the same bytes") {
  ModelFixture fixture("llama");
  const test::ScratchFolder scratch;
  const std::vector<TokenId> head(fixture.ids.begin(), fixture.ids.begin() + 9);
  std::vector<std::span<const TokenId>> samples;
  for (int i = 0; i < 20; ++i) samples.insert(samples.end(), {fixture.ids, head});
  std::vector<int64_t> lengths;
  for (const auto& sample : samples) lengths.push_back(static_cast<int64_t>(sample.size()));
  Warnings warnings;
  const auto run = [&](const LayerwiseOptions& options) {
    LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples, options,
                             warnings);
    return test::run_layers(forward, fixture.config, test::RunMode::kQuantized);
  };
  const std::string expected = run({});
  CHECK(warnings.messages.empty());
  LayerwiseOptions options{.scratch_folder = scratch.path()};
  options.process_can_take =
      memory_needs(fixture.config, fixture.weights, *fixture.backend, options, lengths)
          .with_batch(std::ranges::max(lengths));
  const bool same = run(options) == expected;
  CHECK(same);
  REQUIRE(warnings.messages.size() == 1);
  CHECK(warnings.messages[0] == "hidden states go to a scratch file in '" +
                                    scratch.path().string() +
                                    "': this process can have no more than " +
                                    std::to_string(*options.process_can_take) + " bytes of memory");
}

TEST_CASE("a packed layer's file pages leave the process's memory") {
  const LargeModel model;
  const ModelDir model_dir(model.folder.path());
  const ModelConfig config = read_model_config(model_dir);
  const Weights weights(model_dir, config);
  const auto backend = test::make_backend("cpu", 1);
  const auto resident = [&] { return test::mapped_resident_bytes(model.folder.path().string()); };
  const uint64_t before = resident();
  Backend* const one = backend.get();
  LayerPrefetch layers(weights, config, std::span(&one, 1), ComputeType::kFloat32);
  for (const int64_t layer : {0, 1, 2}) {
    CHECK(layers.bring(layer, LayerParts::kAll)[0].mlp.in.matrix);
    CHECK(resident() < before + kMiB / 2);  // the layer's matrices are 7 MiB
  }
  weights.rows(0, Role::kUp);
  const std::vector<float> read = as_float32(weights.rows(0, Role::kUp).parts);
  CHECK(read.size() == 2048 * 256);
  CHECK(resident() >= before + 2 * kMiB);
  weights.drop(0, Role::kUp, 0);
  CHECK(resident() < before + kMiB / 2);
  CHECK(weights.largest_read_bytes(*backend) == 2 * kMiB);
}

TEST_CASE("embedding and spilled hidden states leave the process's memory, too") {
  const LargeModel model;
  const ModelDir model_dir(model.folder.path());
  const ModelConfig config = read_model_config(model_dir);
  const Weights weights(model_dir, config);
  const auto backend = test::make_backend("cpu", 1);
  const test::ScratchFolder scratch;
  std::vector<TokenId> ids(4096);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<std::span<const TokenId>> samples;
  for (size_t begin = 0; begin < ids.size(); begin += 256)
    samples.push_back(std::span<const TokenId>(ids).subspan(begin, 256));
  const std::vector<int64_t> lengths(samples.size(), 256);
  LayerwiseOptions options{.batch_tokens = 256, .scratch_folder = scratch.path()};
  options.memory_limit = memory_needs(config, weights, *backend, options, lengths).with_batch(256);
  SilentDiagnostics silent;
  LayerwiseForward forward(config, weights, *backend, samples, options, silent);
  const auto resident = [&] {
    return test::mapped_resident_bytes(model.folder.path().string()) +
           test::mapped_resident_bytes(scratch.path().string());
  };
  CHECK(resident() < kMiB);  // 4 MiB of embedding and as much of hidden states
  forward.observe(0);
  CHECK(resident() < kMiB);
}
