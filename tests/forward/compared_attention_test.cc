// Attention over quantized K and V beside attention over unquantized ones.
#include "forward/compared_attention.h"

#include <cmath>

#include "forward/support/forward_run.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::FixtureSamples;
using kvcal::test::ModelFixture;

namespace {

KvQuantization with_scales(const ModelConfig& config, int64_t layer, float k, float v) {
  const auto heads = static_cast<size_t>(config.cache(layer).heads);
  return {KvDType::kFp8E4m3, std::vector<float>(heads, k), std::vector<float>(heads, v)};
}

/// Heads, and those of them that are not just as near as sums in float32 are.
struct Agreement {
  size_t heads = 0, off = 0;
};

/// expected: [relative error, KL] by head. A value of K or V halfway between two codes may get the
/// other one, which moves its head a little.
void check_near(const std::vector<AttentionError>& found, const Json& expected,
                Agreement& agreement) {
  REQUIRE(found.size() == expected.size());
  for (size_t head = 0; head < found.size(); ++head) {
    INFO("head " << head);
    const auto error = expected[head][0].get<double>(), kl = expected[head][1].get<double>();
    const double error_off = std::fabs(found[head].relative_error() - error);
    const double kl_off = std::fabs(found[head].mean_kl() - kl);
    CHECK(found[head].queries == kComparedQueries);
    CHECK(error_off < 2e-5 + 0.1 * error);
    CHECK(kl_off < 2e-6 + 0.1 * kl);
    ++agreement.heads;
    if (error_off > 2e-5 + 1e-3 * error || kl_off > 2e-6 + 2e-3 * kl) ++agreement.off;
  }
}

void check_layers(const std::string& name, const std::string& backend, const Json& layers,
                  Agreement& agreement) {
  ModelFixture fixture(name, backend);
  SilentDiagnostics silent;
  const std::span<const TokenId> sample(fixture.ids);
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, {&sample, 1}, {},
                           silent);
  forward.request({.head = true, .compared_samples = 1});
  size_t compared = 0;
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
    INFO(name << " on " << backend << ", layer " << layer);
    const Json& expected = layers.at(static_cast<size_t>(layer));
    REQUIRE(expected.is_null() == !fixture.config.has_attention(layer));
    if (expected.is_null()) {
      forward.advance_without_attention(layer);
      continue;
    }
    forward.observe_and_advance_exact(layer);
    const KvQuantization candidates[] = {
        with_scales(fixture.config, layer, expected["k_scale"], expected["v_scale"]),
        with_scales(fixture.config, layer, 1.0f, 1.0f)};
    const AttentionComparison found = forward.compare_attention(layer, candidates);
    REQUIRE(found.samples.size() == 1);
    check_near(found.of(0), expected["calibrated"], agreement);
    check_near(found.of(1), expected["unit"], agreement);
    ++compared;
  }
  CHECK(compared > 0);
}

}  // namespace

TEST_CASE("attention's error is that of transformers with quantized K and V") {
  const Json expected =
      parse_json(read_text(test::tests_folder() / "fixtures" / "attention_damage.json"));
  CHECK(expected.at("models").size() > 8);
  for (const std::string& backend : test::backend_names()) {
    Agreement agreement;
    for (const auto& [name, layers] : expected.at("models").items())
      check_layers(name, backend, layers, agreement);
    INFO(backend << ": " << agreement.off << " of " << agreement.heads);
    CHECK(agreement.heads > 100);
    CHECK(agreement.off * 50 < agreement.heads);
  }
}

TEST_CASE("latent attention: the latent's codes damage attention, those of 16 bits hardly do") {
  ModelFixture fixture("deepseek_v3");
  const FixtureSamples samples(fixture);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(), {},
                           silent);
  forward.request({.head = true, .compared_samples = 2});
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
    const LayerObservation seen = forward.observe_and_advance_exact(layer);
    float largest = 0.0f;
    for (const ObservedRange& range : seen.k.ranges)
      largest = std::max({largest, range.max, -range.min});
    KvQuantization half = with_scales(fixture.config, layer, 1.0f, 1.0f);
    half.type = KvDType::kFloat16;
    const KvQuantization candidates[] = {
        half, with_scales(fixture.config, layer, largest / 448, largest / 448),
        with_scales(fixture.config, layer, largest / 20, largest / 20)};
    const AttentionComparison found = forward.compare_attention(layer, candidates);
    REQUIRE(found.samples.size() == 2);
    const double in_half = sum_of(found.of(0)).relative_error();
    const double in_fp8 = sum_of(found.of(1)).relative_error();
    const double clipped = sum_of(found.of(2)).relative_error();
    CHECK(in_half > 0.0);
    CHECK(in_half < 2e-3);
    CHECK(in_fp8 > 4 * in_half);
    CHECK(in_fp8 < 0.5);
    CHECK(std::isfinite(clipped));
  }
}

TEST_CASE("compared samples: as many as have enough tokens, and no more than some") {
  CHECK(compared_samples({}) == 0);
  CHECK(compared_samples(std::vector<int64_t>{5}) == 1);
  CHECK(compared_samples(std::vector<int64_t>(100, 1024)) == 2);
  CHECK(compared_samples(std::vector<int64_t>(1000, 10)) == kComparedSamples);
  CHECK(compared_samples(std::vector<int64_t>(12, 512)) == 4);  // a quarter of all, and a token
  CHECK(compared_samples(std::vector<int64_t>{kComparedTokens, 7}) == 1);
}

TEST_CASE("a pass that compares attention sees the bytes of one that does not") {
  for (const std::string name :
       {"llama", "deepseek_v3", "gemma4_e2b", "qwen3_next", "inkling_text"}) {
    INFO(name);
    ModelFixture fixture(name);
    const FixtureSamples samples(fixture);
    SilentDiagnostics silent;
    std::string seen[2];
    for (const int64_t compared : {0, 3}) {
      LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, samples.spans(),
                               {.batch_tokens = 20}, silent);
      forward.request({.head = true, .compared_samples = compared});
      test::SeenBytes bytes;
      for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer) {
        if (!fixture.config.has_attention(layer)) {
          bytes.add(forward.advance_without_attention(layer));
          continue;
        }
        bytes.add(forward.observe_and_advance_exact(layer));
        const KvQuantization one = with_scales(fixture.config, layer, 1.0f, 1.0f);
        if (fixture.config.has_own_cache(layer)) forward.compare_attention(layer, {&one, 1});
      }
      bytes.add(forward.observe_head());
      seen[compared > 0 ? 1 : 0] = bytes.bytes();
    }
    CHECK(seen[0] == seen[1]);
  }
}
