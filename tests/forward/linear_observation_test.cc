#include "forward/layer_observers.h"

#include <cmath>
#include <map>

#include "forward/layer_runner.h"
#include "forward/support/forward_run.h"
#include "quant/half.h"
#include "support/catch.h"
#include "support/pretending_backend.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;

namespace {

constexpr int64_t kBatchTokens = 40;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Place = std::tuple<int64_t, Role, int64_t>;
using Amaxes = std::map<Place, float>;

/// The whole layer.
std::vector<LinearObservation> run(LayerForward& forward, const ModelConfig& config,
                                   int64_t layer) {
  return config.has_attention(layer) ? forward.observe_and_advance_exact(layer).linears
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
    run(forward, fixture.config, layer);
  return amaxes;
}

/// The same as the passes give it.
Amaxes folded(ModelFixture& fixture, ComputeType type, LinearDetail detail) {
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                           {.compute_type = type, .batch_tokens = kBatchTokens}, silent);
  forward.request({.linears = detail});
  Amaxes amaxes;
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer)
    for (const LinearObservation& linear : run(forward, fixture.config, layer)) {
      amaxes[{layer, linear.role, linear.index}] = linear.amax.value;
      CHECK(linear.nonfinite == 0);
    }
  return amaxes;
}

/// What one sample, alone in a forward pass, gives each Linear; read value by value.
struct Read {
  float min = kInfinity, max = -kInfinity;
  uint64_t tokens = 0;
  MagnitudeHistogram histogram;

  void add(const LinearInput& input) {
    tokens += static_cast<uint64_t>(input.rows);
    for (int64_t i = 0; i < input.rows * input.width; ++i) {
      const float value = input.type == ComputeType::kFloat32
                              ? static_cast<const float*>(input.x)[i]
                              : to_float(static_cast<const BF16*>(input.x)[i]);
      min = std::min(min, value);
      max = std::max(max, value);
      ++histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(value))];
    }
  }
};

std::vector<std::map<Place, Read>> read_alone(ModelFixture& fixture, ComputeType type) {
  const FixtureSamples samples(fixture);
  std::vector<std::map<Place, Read>> read;
  for (const auto& sample : samples.spans()) {
    SilentDiagnostics silent;
    LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, {&sample, 1},
                             {.compute_type = type}, silent);
    std::map<Place, Read>& seen = read.emplace_back();
    forward.observe_linear_inputs([&](const LinearInput& input) {
      seen[{input.layer, input.role, input.index}].add(input);
    });
    for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer)
      run(forward, fixture.config, layer);
  }
  return read;
}

void check_against(const std::vector<std::map<Place, Read>>& read, int64_t layer,
                   const LinearObservation& seen) {
  INFO("layer " << layer << " role " << static_cast<int>(seen.role) << " index " << seen.index);
  REQUIRE(seen.ranges.size() == read.size());
  MagnitudeHistogram histogram;
  uint64_t tokens = 0;
  for (size_t sample = 0; sample < read.size(); ++sample) {
    INFO("sample " << sample);
    const auto found = read[sample].find({layer, seen.role, seen.index});
    const Read expected = found == read[sample].end() ? Read{} : found->second;
    CHECK(seen.ranges[sample].min == expected.min);
    CHECK(seen.ranges[sample].max == expected.max);
    CHECK(seen.ranges[sample].first_nonfinite == -1);
    for (size_t bin = 0; bin < histogram.counts.size(); ++bin)
      histogram.counts[bin] += expected.histogram.counts[bin];
    tokens += expected.tokens;
  }
  CHECK(seen.tokens == tokens);
  CHECK(seen.nonfinite == 0);
  const bool same_histogram = seen.histogram.counts == histogram.counts;
  CHECK(same_histogram);
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
      const bool on_host = folded(plain, type, LinearDetail::kAmax) == expected;
      CHECK(on_host);
      const bool of_samples = folded(plain, type, LinearDetail::kSamples) == expected;
      CHECK(of_samples);
      device.backend = std::make_unique<test::PretendingBackend>(std::move(device.backend));
      const bool on_device = folded(device, type, LinearDetail::kAmax) == expected;
      CHECK(on_device);
    }
}

TEST_CASE("each sample's extremes are those it has alone, the histogram is of all") {
  // Dense; fused; experts, shared ones too; latent; each kind of recurrence.
  for (const std::string name : {"llama", "phi3", "mixtral", "qwen2_moe", "deepseek_v3",
                                 "nemotron_h", "jamba", "qwen3_next", "gpt_oss"})
    for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
      ModelFixture fixture(name);
      if (!fixture.backend->supports(type)) continue;
      INFO(name << " in " << name_of(type));
      const std::vector<std::map<Place, Read>> read = read_alone(fixture, type);
      const FixtureSamples samples(fixture);
      SilentDiagnostics silent;
      LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                               {.compute_type = type, .batch_tokens = kBatchTokens}, silent);
      forward.request({.linears = LinearDetail::kSamples});
      size_t seen = 0, expected = 0;
      for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer)
        for (const LinearObservation& linear : run(forward, fixture.config, layer)) {
          check_against(read, layer, linear);
          ++seen;
        }
      std::map<Place, bool> places;
      for (const auto& sample : read)
        for (const auto& [place, one] : sample) places[place] = true;
      expected = places.size();
      CHECK(seen == expected);
    }
}

TEST_CASE("a pass that does not end the layer gives no inputs, the one that does gives them once") {
  ModelFixture fixture("llama");
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                           {.batch_tokens = kBatchTokens}, silent);
  forward.request({.linears = LinearDetail::kAmax});
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
    const KvQuantization quantization = test::clipping_quantization(fixture.config, layer);
    CHECK(forward.observe(layer).linears.empty());
    forward.count_saturated(layer, quantization);
    const std::vector<LinearObservation> linears = forward.advance(layer, quantization).linears;
    CHECK(linears.size() == 4);
    for (const LinearObservation& one : linears) {
      CHECK(one.tokens == static_cast<uint64_t>(forward.num_tokens()));
      CHECK(one.ranges.empty());
    }
  }
}

namespace {

struct ExpertRun {
  std::string k;  ///< of all layers
  std::map<Place, LinearObservation> linears;
};

ExpertRun run_experts(ModelFixture& fixture, LinearDetail detail, bool all_experts) {
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                           {.batch_tokens = kBatchTokens}, silent);
  forward.request({.head = true, .all_experts = all_experts, .linears = detail});
  ExpertRun result;
  test::SeenBytes k;
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
    LayerObservation seen = forward.observe_and_advance_exact(layer);
    k.add(seen.k);
    for (LinearObservation& one : seen.linears)
      result.linears[{layer, one.role, one.index}] = std::move(one);
  }
  k.add(forward.observe_head());
  result.k = k.bytes();
  return result;
}

/// silu(gate x) * (up x) of every row that the router reads, by plain loops in double.
std::vector<double> inner_rows(const ModelFixture& fixture, int64_t layer, int64_t expert,
                               const std::vector<float>& x) {
  const auto read = [&](Role role) {
    return as_float32(fixture.weights.rows(layer, role, expert).parts);
  };
  const std::vector<float> gate = read(Role::kExpertGate), up = read(Role::kExpertUp);
  const auto hidden = static_cast<size_t>(fixture.config.hidden_size);
  const size_t width = up.size() / hidden;
  std::vector<double> inner;
  for (size_t row = 0; row < x.size() / hidden; ++row)
    for (size_t out = 0; out < width; ++out) {
      double g = 0.0, u = 0.0;
      for (size_t i = 0; i < hidden; ++i) {
        g += static_cast<double>(gate[out * hidden + i]) * x[row * hidden + i];
        u += static_cast<double>(up[out * hidden + i]) * x[row * hidden + i];
      }
      inner.push_back(g / (1.0 + std::exp(-g)) * u);
    }
  return inner;
}

}  // namespace

TEST_CASE("all experts are shown all tokens, and the layer computes what it did") {
  for (const std::string name : {"mixtral", "qwen2_moe", "deepseek_v3"})
    for (const LinearDetail detail : {LinearDetail::kAmax, LinearDetail::kSamples}) {
      INFO(name);
      ModelFixture fixture(name);
      const FixtureSamples samples(fixture);
      uint64_t tokens = 0;
      for (const int64_t length : samples.lengths()) tokens += static_cast<uint64_t>(length);
      const ExpertRun routed = run_experts(fixture, detail, false),
                      all = run_experts(fixture, detail, true);
      const bool same = routed.k == all.k;
      CHECK(same);
      uint64_t routed_tokens = 0;
      size_t experts = 0;
      for (const auto& [place, seen] : all.linears) {
        const auto& [layer, role, index] = place;
        CHECK(seen.tokens == tokens);
        if (role != Role::kExpertUp && role != Role::kExpertDown) {
          CHECK(seen.amax.value == routed.linears.at(place).amax.value);
          continue;
        }
        ++experts;
        if (role == Role::kExpertUp)  // what the router reads, in float32
          CHECK(seen.amax.value == all.linears.at({layer, Role::kRouter, 0}).amax.value);
        const auto chosen = routed.linears.find(place);
        if (chosen == routed.linears.end()) continue;
        CHECK(chosen->second.amax.value <= seen.amax.value);
        CHECK(chosen->second.tokens <= tokens);
        if (role == Role::kExpertUp) routed_tokens += chosen->second.tokens;
        for (size_t sample = 0; sample < seen.ranges.size(); ++sample) {
          CHECK(seen.ranges[sample].min <= chosen->second.ranges[sample].min);
          CHECK(seen.ranges[sample].max >= chosen->second.ranges[sample].max);
        }
      }
      size_t moe_layers = 0;
      for (const LayerConfig& layer : fixture.config.layers) moe_layers += layer.is_moe ? 1 : 0;
      CHECK(experts == 2 * moe_layers * static_cast<size_t>(fixture.config.moe.num_experts));
      CHECK(routed_tokens ==
            moe_layers * tokens * static_cast<uint64_t>(fixture.config.moe.experts_per_token));
    }
}

TEST_CASE("an expert's second input, over all tokens, is what its weights make of the first") {
  ModelFixture fixture("mixtral");
  const std::vector<std::span<const TokenId>> samples{fixture.ids};
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples, {}, silent);
  forward.request({.all_experts = true, .linears = LinearDetail::kSamples});
  std::vector<float> x;
  forward.observe_linear_inputs([&](const LinearInput& input) {
    if (input.role != Role::kRouter) return;
    const auto* values = static_cast<const float*>(input.x);
    x.assign(values, values + input.rows * input.width);
  });
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer)
    for (const LinearObservation& seen : run(forward, fixture.config, layer)) {
      if (seen.role != Role::kExpertDown) continue;
      const std::vector<double> inner = inner_rows(fixture, layer, seen.index, x);
      const auto [min, max] = std::ranges::minmax(inner);
      INFO("layer " << layer << " expert " << seen.index);
      CHECK(test::relative_error(static_cast<double>(seen.ranges.at(0).min), min) <= 1e-4);
      CHECK(test::relative_error(static_cast<double>(seen.ranges.at(0).max), max) <= 1e-4);
    }
}

TEST_CASE("a dense layer's inputs need no operation of their own") {
  for (const std::string name : {"llama", "gemma2", "qwen3_next"}) {
    ModelFixture fixture(name);
    auto pretending = std::make_unique<test::PretendingBackend>(std::move(fixture.backend));
    const test::PretendingBackend& backend = *pretending;
    fixture.backend = std::move(pretending);
    folded(fixture, ComputeType::kFloat32, LinearDetail::kAmax);
    INFO(name);
    const auto observed = backend.counts.find("observe_amax");
    const bool has_experts = fixture.config.architecture->has_experts();
    CHECK((observed != backend.counts.end()) == has_experts);
  }
}
