// The model on a backend that behaves as a device: nothing but the contract may reach its memory.
#include <algorithm>

#include "forward/decoder.h"
#include "forward/support/forward_run.h"
#include "support/catch.h"
#include "support/pretending_backend.h"
#include "support/step_all.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;
using kvcal::test::PretendingBackend;
using kvcal::test::RunMode;

namespace {

PretendingBackend& pretend(ModelFixture& fixture) {
  auto pretending = std::make_unique<PretendingBackend>(std::move(fixture.backend));
  PretendingBackend& result = *pretending;
  fixture.backend = std::move(pretending);
  return result;
}

std::string run(ModelFixture& fixture, RunMode mode, int64_t batch_tokens = 40,
                const ObservationRequest& request = {}) {
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                           {.batch_tokens = batch_tokens}, silent);
  return test::run_layers(forward, fixture.config, mode, request);
}

int64_t count_of(const PretendingBackend& backend, const std::string& operation) {
  const auto it = backend.counts.find(operation);
  return it == backend.counts.end() ? 0 : it->second;
}

}  // namespace

TEST_CASE("a device sees the bytes that a host sees, in any fixture") {
  for (const std::string& name : test::model_fixture_names())
    for (const RunMode mode : {RunMode::kQuantized, RunMode::kExact, RunMode::kExactInOnePass}) {
      INFO(name);
      ModelFixture host(name), device(name);
      pretend(device);
      const ObservationRequest request =
          mode == RunMode::kExact ? ObservationRequest{} : test::kObserveAll;
      const bool same = run(host, mode, 40, request) == run(device, mode, 40, request);
      CHECK(same);
    }
}

TEST_CASE("what is asked for beside K and V costs one operation each, nothing without") {
  const auto counts = [](const ObservationRequest& request) {
    ModelFixture fixture("llama");
    PretendingBackend& backend = pretend(fixture);
    run(fixture, RunMode::kExact, 1000, request);
    return backend.counts;
  };
  auto none = counts({}), query = counts({.query = true}), all = counts(test::kObserveAll);
  auto amax = counts({.linears = LinearDetail::kAmax}), channels = counts({.channels = true});
  const ModelFixture fixture("llama");
  const int64_t layers = fixture.config.num_hidden_layers;
  CHECK(none["observe_kv"] + none["observe_rows"] + none["observe_amax"] == 0);
  CHECK(query["observe_kv"] == layers);
  CHECK(query["observe_rows"] == 0);
  CHECK(query["matmul"] == none["matmul"] + layers);  // Q of the pass that observes
  CHECK(channels["observe_kv"] == 2 * layers);        // K and V
  CHECK(all["observe_kv"] == 3 * layers);
  CHECK(all["observe_rows"] == 4 * layers + 1);  // q, o, up, down; lm_head
  CHECK(all["observe_amax"] == 0);
  CHECK(amax["observe_rows"] + amax["observe_amax"] == 0);
  CHECK(amax["attention"] == layers);
  CHECK(none["attention"] == layers - 1);
}

TEST_CASE("experts whose rows fit the activations are gathered, activated and combined together") {
  for (const std::string& name :
       std::vector<std::string>{"mixtral", "deepseek_v3", "llama4", "phimoe"}) {
    ModelFixture fixture(name);
    PretendingBackend& backend = pretend(fixture);
    run(fixture, RunMode::kExactInOnePass, 1000, {.linears = LinearDetail::kAmax});
    const MoeConfig& moe = fixture.config.moe;
    int64_t layers = 0;
    for (const LayerConfig& layer : fixture.config.layers) layers += layer.is_moe ? 1 : 0;
    // Two neighbouring waves together have more rows than a batch has tokens.
    const int64_t most = layers * (2 * moe.experts_per_token);
    const int64_t waves = count_of(backend, "gather_rows");
    const int64_t shared = moe.shared_intermediate_size > 0 ? layers : 0;
    INFO(name << ", " << layers << " layers");
    CHECK(2 * moe.experts_per_token < moe.num_experts);
    CHECK(waves >= layers);
    CHECK(waves <= most);
    CHECK(count_of(backend, "combine_rows") == waves + shared);
  }
}

TEST_CASE("K and V enter the cache in one operation a batch, which turns and observes them too") {
  for (const std::string name : {"llama", "deepseek_v3"}) {
    ModelFixture fixture(name);
    PretendingBackend& backend = pretend(fixture);
    run(fixture, RunMode::kExactInOnePass, 1);  // five batches a layer
    const int64_t attending = fixture.config.last_attention_layer() + 1;
    INFO(name);
    CHECK(count_of(backend, "enter_cache") == 5 * (attending + 1));  // the last one is counted too
    CHECK(count_of(backend, "observe_kv") == 0);
    CHECK(count_of(backend, "store_kv") == 0);
    CHECK(count_of(backend, "rope") == 5 * (attending - 1));  // Q
  }
}

TEST_CASE("what stands between projections is one operation") {
  struct Case {
    std::string fixture;
    int64_t fused, norms, adds;  // a layer and batch
  };
  // Output norms; a residual multiplier; output norms alone; neither.
  for (const Case& c :
       {Case{"gemma2", 2, 1, 0}, {"granite", 2, 1, 0}, {"olmo2", 2, 0, 0}, {"llama", 0, 2, 0}}) {
    ModelFixture fixture(c.fixture);
    PretendingBackend& backend = pretend(fixture);
    const FixtureSamples samples(fixture);
    SilentDiagnostics silent;
    LayerwiseForward forward(fixture.config, fixture.weights, backend, samples.spans(),
                             {.batch_tokens = 1000}, silent);
    backend.counts.clear();
    forward.observe_and_advance_exact(0);
    INFO(c.fixture);
    CHECK(count_of(backend, "residual_norm") == c.fused);
    CHECK(count_of(backend, "norm") == c.norms);
    CHECK(count_of(backend, "add") == c.adds);
  }
}

TEST_CASE("a device's logits are the host's") {
  for (const std::string& name : test::model_fixture_names()) {
    INFO(name);
    std::vector<std::vector<float>> logits;
    for (const bool is_device : {false, true}) {
      ModelFixture fixture(name);
      if (is_device) pretend(fixture);
      Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
      KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 64);
      // Some fixtures have fewer tokens than 13.
      const auto ids = std::span(fixture.ids).first(std::min<size_t>(fixture.ids.size(), 13));
      logits.push_back(test::step_all(decoder, ids.first(ids.size() - 2), cache));
      logits.push_back(decoder.step(ids.last(2), cache));
    }
    CHECK(logits[0] == logits[2]);
    CHECK(logits[1] == logits[3]);
  }
}
