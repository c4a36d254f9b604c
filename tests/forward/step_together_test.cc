// Several sequences of one cache, taken a step further together.
#include <cmath>

#include "forward/decoder.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/pretending_backend.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

using Sequences = std::vector<Decoder::SequenceTokens>;

std::vector<LayerKvScales> scales_of(const ModelConfig& config, KvDType dtype) {
  if (!is_fp8(dtype)) return {};
  return std::vector<LayerKvScales>(static_cast<size_t>(config.num_hidden_layers),
                                    {{Scale{0.05f}}, {Scale{0.02f}}, false});
}

/// A fixture's tokens, from another one on for each sequence.
std::vector<TokenId> tokens_from(const ModelFixture& fixture, size_t first, size_t count) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(fixture.ids[(first + i) % fixture.ids.size()]);
  return ids;
}

/// What steps give each of these sequences: a prompt, and then so many tokens one by one.
struct Text {
  std::vector<TokenId> ids;
  size_t prompt = 0;
};
constexpr size_t kNewTokens = 4;
std::vector<Text> texts_of(const ModelFixture& fixture) {
  std::vector<Text> texts;
  for (const size_t prompt : {5, 1, 9})
    texts.push_back({tokens_from(fixture, 3 * prompt, prompt + kNewTokens), prompt});
  return texts;
}

using Logits = std::vector<std::vector<float>>;

/// The logits of one text's steps, in a cache of its own.
Logits alone(Decoder& decoder, const Text& text, KvDType dtype) {
  KvCache cache = decoder.make_cache(dtype, scales_of(decoder.config(), dtype), 16);
  const std::span<const TokenId> ids = text.ids;
  Logits logits{decoder.step(ids.first(text.prompt), cache)};
  for (size_t i = text.prompt; i < ids.size(); ++i)
    logits.push_back(decoder.step(ids.subspan(i, 1), cache));
  return logits;
}

/// The same of all texts, each in its slot of one cache.
std::vector<Logits> together(Decoder& decoder, const std::vector<Text>& texts,
                             const std::vector<int64_t>& slots, KvDType dtype) {
  KvCache cache = decoder.make_cache(dtype, scales_of(decoder.config(), dtype), 16, 5);
  std::vector<Logits> logits(texts.size());
  const auto keep = [&](const std::vector<float>& rows) {
    const size_t vocab = rows.size() / texts.size();
    for (size_t i = 0; i < texts.size(); ++i)
      logits[i].emplace_back(rows.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                             rows.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
  };
  Sequences prompts;
  for (size_t i = 0; i < texts.size(); ++i)
    prompts.push_back({slots[i], std::span(texts[i].ids).first(texts[i].prompt)});
  keep(decoder.step_together(prompts, cache));
  for (size_t step = 0; step < kNewTokens; ++step) {
    Sequences tokens;
    for (size_t i = 0; i < texts.size(); ++i)
      tokens.push_back({slots[i], std::span(texts[i].ids).subspan(texts[i].prompt + step, 1)});
    keep(decoder.step_together(tokens, cache));
  }
  return logits;
}

/// Largest difference, relative to the largest of expected.
double distance(const std::vector<float>& found, const std::vector<float>& expected) {
  double largest = 0.0, scale = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(found[i]) - expected[i]));
    scale = std::max(scale, std::fabs(static_cast<double>(expected[i])));
  }
  return largest / scale;
}

}  // namespace

TEST_CASE("sequences that step together get what each gets alone, in any fixture") {
  for (const std::string& name : test::model_fixture_names())
    for (const KvDType dtype : {KvDType::kFloat32, KvDType::kFp8E4m3}) {
      INFO(name << " with " << name_of(dtype));
      ModelFixture fixture(name);
      Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
      const std::vector<Text> texts = texts_of(fixture);
      const std::vector<Logits> found = together(decoder, texts, {0, 1, 4}, dtype);
      for (size_t i = 0; i < texts.size(); ++i) {
        const Logits expected = alone(decoder, texts[i], dtype);
        const bool same = found[i] == expected;
        CHECK(same);
      }
    }
}

TEST_CASE("a device's steps of several sequences are near those of single ones") {
  for (const std::string& backend : test::backend_names()) {
    if (backend == "cpu") continue;  // which gives the bytes of single ones
    for (const std::string name :
         {"llama", "gemma3_text", "jamba", "qwen3_next", "deepseek_v3", "qwen4_exp"}) {
      INFO(name << " on " << backend);
      ModelFixture fixture(name, backend);
      Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
      const std::vector<Text> texts = texts_of(fixture);
      const std::vector<Logits> found = together(decoder, texts, {1, 2, 3}, KvDType::kFloat32);
      for (size_t i = 0; i < texts.size(); ++i) {
        const Logits expected = alone(decoder, texts[i], KvDType::kFloat32);
        for (size_t step = 0; step < expected.size(); ++step)
          CHECK(distance(found[i][step], expected[step]) < 1e-5);
        // Which others go with it changes no byte. (One prompt has one token alone.)
        if (texts[i].prompt == 1) continue;
        const bool same = together(decoder, {texts[i]}, {4}, KvDType::kFloat32)[0] == found[i];
        CHECK(same);
      }
    }
  }
}

TEST_CASE("a slot that is cleared holds a new sequence, and the others stay") {
  for (const std::string name : {"llama", "bamba", "qwen3_next", "jamba", "deepseek_v2",
                                 "olmo_hybrid", "mimo_v2_flash", "inkling_text", "qwen4_exp"}) {
    INFO(name);
    ModelFixture fixture(name);
    Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
    KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 16, 3);
    const auto first = tokens_from(fixture, 0, 7), second = tokens_from(fixture, 4, 6);
    const auto next = tokens_from(fixture, 9, 1);
    const std::vector<float> expected = decoder.step_together(Sequences{{1, first}}, cache);
    decoder.step_together(Sequences{{0, second}, {2, first}}, cache);
    const std::vector<float> untouched = [&] {
      KvCache own = decoder.make_cache(KvDType::kFloat32, {}, 16);
      decoder.step(second, own);
      return decoder.step(next, own);
    }();
    cache.clear(1);
    CHECK(cache.length(1) == 0);
    CHECK(cache.length(2) == 7);
    CHECK(decoder.step_together(Sequences{{1, first}}, cache) == expected);
    CHECK(decoder.step_together(Sequences{{0, next}}, cache) == untouched);
  }
}

TEST_CASE("a step of several sequences refuses what a step of one refuses, and changes nothing") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 4, 2);
  const auto ids = tokens_from(fixture, 0, 4);
  const std::span<const TokenId> all = ids;
  decoder.step_together(Sequences{{0, all}}, cache);
  CHECK_THROWS_AS(decoder.step_together(Sequences{{0, all.first(1)}, {1, all}}, cache), Error);
  const auto outside = static_cast<TokenId>(fixture.config.vocab_size);
  CHECK_THROWS_AS(decoder.step_together(Sequences{{1, std::span(&outside, 1)}}, cache), Error);
  CHECK(cache.length(0) == 4);
  CHECK(cache.length(1) == 0);
}

TEST_CASE("a cache of several sequences takes as many bytes as it says") {
  for (const std::string name : {"llama", "jamba", "qwen3_next", "deepseek_v3", "inkling_text"})
    for (const KvDType dtype : {KvDType::kFloat32, KvDType::kFloat16, KvDType::kFp8E4m3}) {
      INFO(name << " with " << name_of(dtype));
      ModelFixture fixture(name);
      const auto scales = scales_of(fixture.config, dtype);
      const KvCache cache(fixture.config, *fixture.backend, dtype, scales, 16, 3);
      const ModelConfig& config = fixture.config;
      const auto layers = std::ssize(config.attention_layers());
      int64_t elements = 0;
      for (const int64_t layer : config.attention_layers())
        elements += 16 * config.cache(layer).width();
      const auto kv_bytes = static_cast<uint64_t>(elements * bytes_per_element(dtype));
      const uint64_t found = KvCache::bytes_per_slot(config, dtype, scales, 16);
      if (layers == config.num_hidden_layers && config.short_kernel == 0) {
        CHECK(found == kv_bytes);
      } else {
        CHECK(found > kv_bytes);
        // States do not grow with the capacity.
        CHECK(KvCache::bytes_per_slot(config, dtype, scales, 32) - found == kv_bytes);
      }
    }
}
