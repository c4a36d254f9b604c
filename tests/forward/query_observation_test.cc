#include <algorithm>

#include "backend/backend.h"
#include "forward/attention.h"
#include "forward/support/family_check.h"
#include "forward/support/forward_run.h"
#include "quant/fp8.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;

namespace {

LayerwiseForward make_forward(ModelFixture& fixture, const FixtureSamples& samples,
                              Diagnostics& diagnostics) {
  return {fixture.config,  fixture.weights,      *fixture.backend,
          samples.spans(), {.batch_tokens = 40}, diagnostics};
}

}  // namespace

TEST_CASE("queries are what transformers hands to attention") {
  const Json expected =
      parse_json(read_text(test::tests_folder() / "fixtures" / "query_extremes.json"));
  CHECK(expected.at("models").size() > 3);
  for (const auto& [name, layers] : expected.at("models").items())
    for (const std::string& backend : test::backend_names()) {
      INFO(name << " on " << backend);
      ModelFixture fixture(name, backend);
      test::Extremes(fixture, ComputeType::kFloat32).check_queries(layers, test::kFloat32Tolerance);
    }
}

TEST_CASE("every way through a layer observes the same queries, each sample's its own") {
  for (const std::string name :
       {"llama", "qwen3", "deepseek_v3", "qwen3_next", "gemma4_e2b", "laguna"}) {
    INFO(name);
    ModelFixture fixture(name);
    const FixtureSamples samples(fixture);
    SilentDiagnostics silent;
    LayerwiseForward first = make_forward(fixture, samples, silent),
                     second = make_forward(fixture, samples, silent);
    first.request({.query = true});
    second.request({.query = true, .head = true});
    std::vector<std::vector<KvObservation>> alone;
    for (const auto& sample : samples.spans()) {
      LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, {&sample, 1}, {},
                               silent);
      forward.request({.query = true, .head = true});
      std::vector<KvObservation>& layers = alone.emplace_back();
      for (int64_t layer = 0; layer <= fixture.config.last_attention_layer(); ++layer) {
        if (!fixture.config.has_attention(layer)) forward.advance_without_attention(layer);
        layers.push_back(fixture.config.has_attention(layer)
                             ? forward.observe_and_advance_exact(layer).q.value()
                             : KvObservation{});
      }
    }
    for (int64_t layer = 0; layer <= fixture.config.last_attention_layer(); ++layer) {
      if (!fixture.config.has_attention(layer)) {
        first.advance_without_attention(layer);
        second.advance_without_attention(layer);
        continue;
      }
      const auto heads = static_cast<size_t>(fixture.config.attention(layer).heads);
      const LayerObservation observed = first.observe(layer);
      if (layer < fixture.config.last_attention_layer()) first.advance_exact(layer);
      test::SeenBytes one, other;
      one.add(observed);
      other.add(second.observe_and_advance_exact(layer));
      const bool same = one.bytes() == other.bytes();
      CHECK(same);
      const KvObservation& q = observed.q.value();
      REQUIRE(q.ranges.size() == alone.size() * heads);
      for (size_t i = 0; i < q.ranges.size(); ++i) {
        const ObservedRange& own =
            alone[i / heads][static_cast<size_t>(layer)].ranges.at(i % heads);
        CHECK(q.ranges[i].min == own.min);
        CHECK(q.ranges[i].max == own.max);
      }
    }
  }
}

TEST_CASE("quantized queries are codes times scales, head by head") {
  const std::vector<float> scales{0.5f, 0.01f, 3.0f};
  std::vector<float> values;
  for (int i = 0; i < 4 * 3 * 5; ++i) values.push_back(0.37f * static_cast<float>(i - 31));
  for (const std::string& name : test::backend_names()) {
    INFO(name);
    const auto backend = test::make_backend(name);
    const Buffer q = upload<float>(values, *backend), on_backend = upload<float>(scales, *backend);
    const Buffer codes = backend->allocate(values.size());
    quantize_query(
        *backend,
        {.x = {.data = q.as<float>(), .tokens = 4, .heads = 3, .head_dim = 5, .row_stride = 15},
         .dtype = KvDType::kFp8E4m3,
         .scales = on_backend.as<float>(),
         .out = codes.data()});
    std::vector<float> rounded(values.size());
    backend->copy_out(q.data(), std::as_writable_bytes(std::span(rounded)));
    for (size_t i = 0; i < values.size(); ++i) {
      const float scale = scales[i / 5 % 3];
      const uint8_t code = fp8::encode(values[i] / scale, fp8::Format::kE4m3Fn);
      CHECK(rounded[i] == scale * fp8::decode(code, fp8::Format::kE4m3Fn));
    }
  }
}

TEST_CASE("attention reads queries as their scales store them") {
  for (const std::string name : {"llama", "deepseek_v3"}) {
    INFO(name);
    ModelFixture fixture(name);
    const FixtureSamples samples(fixture);
    const auto heads = static_cast<size_t>(fixture.config.cache(0).heads);
    // Of the input of o_proj: without scales of Q, with fine ones, and with ones that leave
    // nothing.
    std::vector<float> amaxes;
    for (const float q_scale : {0.0f, 0.01f, 1e6f}) {
      SilentDiagnostics silent;
      LayerwiseForward forward = make_forward(fixture, samples, silent);
      forward.request({.linears = LinearDetail::kAmax});
      KvQuantization quantization{.k_scales = std::vector<float>(heads, 0.02f),
                                  .v_scales = std::vector<float>(heads, 0.02f)};
      if (q_scale > 0.0f)
        quantization.q_scales.assign(static_cast<size_t>(fixture.config.num_attention_heads),
                                     q_scale);
      const LayerAdvance advance = forward.advance(0, quantization);
      amaxes.push_back(
          std::ranges::find(advance.linears, Role::kOutput, &LinearObservation::role)->amax.value);
    }
    CHECK(amaxes[1] != amaxes[0]);
    CHECK(test::relative_error(static_cast<double>(amaxes[1]), static_cast<double>(amaxes[0])) <
          0.05);
    CHECK(amaxes[2] != amaxes[1]);
  }
}
