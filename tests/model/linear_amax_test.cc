#include "model/linear_amax.h"

#include <map>

#include "model/support/forward_run.h"
#include "support/catch.h"
#include "support/pretending_backend.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;

namespace {

using Amaxes = std::map<std::tuple<int64_t, Role, int64_t>, float>;

constexpr int64_t kBatchTokens = 40;

/// The whole layer.
std::vector<LinearAmax> run(LayerwiseForward& forward, const ModelFixture& fixture, int64_t layer) {
  return fixture.config.has_attention(layer) ? forward.observe_and_advance_exact(layer).linears
                                             : forward.advance_without_attention(layer).linears;
}

/// Every Linear's input, shown to a callback and folded by observe_amax: the plain way.
Amaxes shown(ModelFixture& fixture, ComputeType type) {
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                           {.compute_type = type, .batch_tokens = kBatchTokens}, silent);
  Amaxes amaxes;
  forward.observe_linear_inputs([&](const LinearInput& input) {
    float amax = 0.0f;
    uint64_t nonfinite = 0;
    fixture.backend->observe_amax({.x = input.x,
                                   .type = input.type,
                                   .count = input.rows * input.width,
                                   .amax = &amax,
                                   .nonfinite = &nonfinite});
    CHECK(nonfinite == 0);
    float& entry = amaxes[{input.layer, input.role, input.index}];
    entry = std::max(entry, amax);
  });
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer)
    run(forward, fixture, layer);
  return amaxes;
}

/// The same as the passes give it.
Amaxes folded(ModelFixture& fixture, ComputeType type) {
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                           {.compute_type = type, .batch_tokens = kBatchTokens}, silent);
  forward.observe_linear_amax(true);
  Amaxes amaxes;
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
    const std::vector<LinearAmax> linears = run(forward, fixture, layer);
    for (const LinearAmax& linear : linears) {
      amaxes[{layer, linear.role, linear.index}] = linear.amax.value;
      CHECK(linear.nonfinite == 0);
    }
  }
  return amaxes;
}

}  // namespace

TEST_CASE("what producers fold of Linears' inputs is what a callback sees, in any fixture") {
  for (const std::string& name : test::model_fixture_names())
    for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
      ModelFixture plain(name, "reference"), device(name, "reference");
      if (!plain.backend->supports(type)) continue;
      INFO(name << " in " << name_of(type));
      const Amaxes expected = shown(plain, type);
      REQUIRE(expected.size() > 1);
      const bool on_host = folded(plain, type) == expected;
      CHECK(on_host);
      device.backend = std::make_unique<test::PretendingBackend>(std::move(device.backend));
      const bool on_device = folded(device, type) == expected;
      CHECK(on_device);
    }
}

TEST_CASE("a dense layer's inputs need no operation of their own") {
  for (const std::string name : {"llama", "gemma2", "qwen3_next"}) {
    ModelFixture fixture(name);
    auto pretending = std::make_unique<test::PretendingBackend>(std::move(fixture.backend));
    const test::PretendingBackend& backend = *pretending;
    fixture.backend = std::move(pretending);
    folded(fixture, ComputeType::kFloat32);
    INFO(name);
    const auto observed = backend.counts.find("observe_amax");
    const bool has_experts = fixture.config.architecture->has_experts();
    CHECK((observed != backend.counts.end()) == has_experts);
  }
}

TEST_CASE("extremes of other samples are folded by role and expert") {
  std::vector<LinearAmax> amaxes{{Role::kQuery, 0, Amax{1.0f}, 1}, {Role::kDown, 0, Amax{4.0f}, 0}};
  std::ranges::sort(amaxes, {}, &LinearAmax::role);
  const std::vector<LinearAmax> other{{Role::kQuery, 0, Amax{3.0f}, 2},
                                      {Role::kExpertUp, 5, Amax{2.0f}, 0}};
  merge_linear_amax(amaxes, other);
  REQUIRE(amaxes.size() == 3);
  CHECK(std::ranges::is_sorted(
      amaxes, {}, [](const LinearAmax& one) { return std::pair(one.role, one.index); }));
  const auto query = std::ranges::find(amaxes, Role::kQuery, &LinearAmax::role);
  CHECK(query->amax.value == 3.0f);
  CHECK(query->nonfinite == 3);
  CHECK(std::ranges::find(amaxes, Role::kExpertUp, &LinearAmax::role)->index == 5);
}
