#include "eval/generate.h"

#include <cmath>
#include <map>

#include "eval/logit_rows.h"
#include "stored/kv_scales.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

/// Token n is the n-th piece; pieces may end in the middle of a character.
class PieceTokenizer : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::vector<TokenId> encode(std::string_view, bool) const override { return {}; }
  std::string decode(std::span<const TokenId> ids, bool) const override {
    std::string bytes;
    for (const TokenId id : ids) bytes += pieces_[static_cast<size_t>(id)];
    // Only whole two-byte characters occur here; a lone lead byte becomes U+FFFD.
    if (!bytes.empty() && static_cast<unsigned char>(bytes.back()) == 0xc3)
      bytes.replace(bytes.size() - 1, 1, "\xef\xbf\xbd");
    return bytes;
  }
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  std::optional<TokenId> token_to_id(std::string_view) const override { return std::nullopt; }
  std::optional<std::string> id_to_token(TokenId) const override { return std::nullopt; }

 private:
  std::vector<std::string> pieces_;
};

}  // namespace

TEST_CASE("greedy generation is transformers', and stops at a stop token") {
  for (const std::string& backend : test::backend_names()) {
    INFO(backend);
    ModelFixture fixture("llama", backend);
    Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
    const auto prompt = fixture.expected.at("greedy_prompt").get<std::vector<TokenId>>();
    const auto expected = fixture.expected.at("greedy").get<std::vector<TokenId>>();
    GenerateOptions options;
    options.max_new_tokens = static_cast<int64_t>(expected.size());
    KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 64);
    const Generation whole = generate(decoder, cache, prompt, options);
    CHECK(whole.ids == expected);
    CHECK(whole.finish_reason == "length");

    options.stop_tokens = {expected[4]};
    KvCache again = decoder.make_cache(KvDType::kFloat32, {}, 64);
    const Generation stopped = generate(decoder, again, prompt, options);
    CHECK(stopped.ids == std::vector<TokenId>(expected.begin(), expected.begin() + 4));
    CHECK(stopped.finish_reason == "stop");
  }
}

TEST_CASE("comparing a cache with itself finds no difference, with a coarse one it does") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const auto prompt = fixture.expected.at("greedy_prompt").get<std::vector<TokenId>>();
  GenerateOptions options;
  options.max_new_tokens = 16;
  KvCache first = decoder.make_cache(KvDType::kFloat32, {}, 64);
  KvCache same = decoder.make_cache(KvDType::kFloat32, {}, 64);
  const Comparison equal = compare_caches(decoder, first, same, prompt, options);
  CHECK(equal.first_divergence == -1);
  REQUIRE(equal.kl.size() == 16);
  for (const double kl : equal.kl) CHECK(kl == 0.0);

  KvCache plain = decoder.make_cache(KvDType::kFloat32, {}, 64);
  KvCache coarse = decoder.make_cache(KvDType::kFp8E5m2, unit_scales(fixture.config), 64);
  const Comparison different = compare_caches(decoder, plain, coarse, prompt, options);
  CHECK(test::message_of([&] { compare_caches(decoder, plain, coarse, {}, options); }) ==
        "the prompt has no token");
  double sum = 0.0;
  for (const double kl : different.kl) sum += kl;
  CHECK(sum > 0.0);
  CHECK(different.first.ids == equal.first.ids);
}

TEST_CASE("an FP8 cache without scales, a full cache and an empty prompt are errors") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  CHECK_THROWS_AS(decoder.make_cache(KvDType::kFp8E4m3, {}, 8), Error);
  KvCache small = decoder.make_cache(KvDType::kFloat32, {}, 4);
  CHECK_THROWS_AS(decoder.step(fixture.ids, small), Error);
  CHECK_THROWS_AS(generate(decoder, small, {}, {}), Error);
  const TokenId outside = 160;
  CHECK_THROWS_AS(decoder.step(std::span(&outside, 1), small), Error);
}

TEST_CASE("sampling follows the distribution, top-k and top-p cut it") {
  const std::vector<float> logits{std::log(0.5f), std::log(0.25f), std::log(0.2f), std::log(0.05f)};
  const auto frequencies = [&](const SamplingOptions& options) {
    Sampler sampler(options);
    std::map<TokenId, double> counts;
    for (int i = 0; i < 20000; ++i) counts[sampler.pick(logits)] += 1.0 / 20000;
    return counts;
  };
  auto all = frequencies({.temperature = 1.0, .seed = 3});
  CHECK(all[0] == Approx(0.5).margin(0.02));
  CHECK(all[3] == Approx(0.05).margin(0.01));
  auto top_two = frequencies({.temperature = 1.0, .top_k = 2, .seed = 3});
  CHECK(top_two.size() == 2);
  CHECK(top_two[0] == Approx(2.0 / 3).margin(0.02));
  // 0.5 + 0.25 reach 0.7, so two tokens stay.
  CHECK(frequencies({.temperature = 1.0, .top_p = 0.7, .seed = 3}).size() == 2);
  CHECK(frequencies({.temperature = 0.0}).size() == 1);
  auto cold = frequencies({.temperature = 0.5, .seed = 3});
  CHECK(cold[0] == Approx(0.25 / (0.25 + 0.0625 + 0.04 + 0.0025)).margin(0.02));
}

TEST_CASE("the same seed samples the same tokens, bad options are refused") {
  const std::vector<float> logits(50, 0.0f);
  Sampler a({.temperature = 1.0, .seed = 9}), b({.temperature = 1.0, .seed = 9});
  for (int i = 0; i < 100; ++i) CHECK(a.pick(logits) == b.pick(logits));
  CHECK_THROWS_AS(Sampler({.temperature = -1.0}), Error);
  CHECK_THROWS_AS(Sampler({.top_p = 0.0}), Error);
  CHECK_THROWS_AS(Sampler({.top_k = -1}), Error);
}

TEST_CASE("KL divergence of known distributions") {
  const std::vector<float> p{std::log(0.5f), std::log(0.5f)}, q{std::log(0.25f), std::log(0.75f)};
  CHECK(kl_divergence(p, q) == Approx(0.5 * std::log(2.0) + 0.5 * std::log(0.5 / 0.75)));
  CHECK(kl_divergence(p, p) == 0.0);
}

TEST_CASE("text streams never show half a character") {
  const PieceTokenizer tokenizer({"caf", "\xc3", "\xa9", "!"});
  TextStream stream(tokenizer);
  CHECK(stream.push(0) == "caf");
  CHECK(stream.push(1) == "");
  CHECK(stream.push(2) == "\xc3\xa9");
  CHECK(stream.push(3) == "!");
  CHECK(stream.push(1) == "");
  CHECK(stream.finish() == "\xef\xbf\xbd");
}

TEST_CASE("stop tokens come from the generation config, else from the model's") {
  const auto stops = [](const char* generation, const char* config) {
    return stop_tokens_of(parse_json(generation), parse_json(config));
  };
  CHECK(stops(R"({"eos_token_id": [2, 7]})", R"({"eos_token_id": 5})") == std::set<TokenId>{2, 7});
  CHECK(stops("{}", R"({"eos_token_id": 5})") == std::set<TokenId>{5});
  CHECK(stops("{}", "{}").empty());
  CHECK_THROWS_AS(stops(R"({"eos_token_id": "x"})", "{}"), Error);
}

TEST_CASE("doubled scales give an FNUZ cache the values an FN cache holds") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const std::vector<LayerKvScales> scales(2, {{Scale{0.08f}}, {Scale{0.03f}}});
  KvCache fn = decoder.make_cache(KvDType::kFp8E4m3, scales, 64);
  KvCache fnuz = decoder.make_cache(KvDType::kFp8E4m3Fnuz, doubled_for_fnuz(scales), 64);
  KvCache undoubled = decoder.make_cache(KvDType::kFp8E4m3Fnuz, scales, 64);
  const auto expected = decoder.step(fixture.ids, fn), actual = decoder.step(fixture.ids, fnuz);
  // The same codes but for the smallest: FNUZ has one more power of two below.
  CHECK(kl_divergence(expected, actual) < 1e-3);
  CHECK(kl_divergence(expected, decoder.step(fixture.ids, undoubled)) >
        kl_divergence(expected, actual));
}
