
#include "forward/decoder.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/pretending_backend.h"

using namespace kvcal;
using kvcal::test::ModelFixture;
using kvcal::test::PretendingBackend;

namespace {

PretendingBackend& pretend(ModelFixture& fixture, bool records) {
  auto pretending = std::make_unique<PretendingBackend>(std::move(fixture.backend));
  PretendingBackend& result = *pretending;
  result.records = records;
  fixture.backend = std::move(pretending);
  return result;
}

std::vector<LayerKvScales> scales_of(const ModelConfig& config, KvDType dtype) {
  if (!is_fp8(dtype)) return {};
  return std::vector<LayerKvScales>(static_cast<size_t>(config.num_hidden_layers),
                                    {{Scale{0.05f}}, {Scale{0.02f}}, false});
}

/// Logits of a prompt and the steps after it.
std::vector<std::vector<float>> stepped(ModelFixture& fixture, KvDType dtype, size_t prompt) {
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  KvCache cache = decoder.make_cache(dtype, scales_of(fixture.config, dtype),
                                     static_cast<int64_t>(fixture.ids.size()));
  std::vector<std::vector<float>> logits;
  const std::span<const TokenId> ids = fixture.ids;
  logits.push_back(decoder.step(ids.first(prompt), cache));
  for (size_t i = prompt; i < ids.size(); ++i)
    logits.push_back(decoder.step(ids.subspan(i, 1), cache));
  return logits;
}

bool is_recorded(const ModelConfig& config) {
  bool has_experts = false;
  for (const LayerConfig& layer : config.layers) has_experts = has_experts || layer.is_moe;
  return !has_experts && !config.architecture->has_latent_attention && !config.has_layer_inputs;
}

}  // namespace

TEST_CASE("recorded steps give the logits of steps that are not, in any fixture") {
  for (const std::string& name : test::model_fixture_names())
    for (const KvDType dtype : {KvDType::kFloat32, KvDType::kFp8E4m3}) {
      INFO(name << " with " << name_of(dtype));
      ModelFixture host(name), device(name);
      PretendingBackend& backend = pretend(device, true);
      const auto expected = stepped(host, dtype, 5);
      const bool same = stepped(device, dtype, 5) == expected;
      CHECK(same);
      const int64_t steps = static_cast<int64_t>(host.ids.size()) - 5;
      if (is_recorded(host.config)) {
        CHECK(backend.num_plays <= steps);
        CHECK(backend.num_plays > 0);
        CHECK(backend.num_recordings < backend.num_plays);
      } else {
        CHECK(backend.num_plays == 0);
      }
    }
}

TEST_CASE("a model without stretched ropes records once a cache and plays every step") {
  ModelFixture fixture("llama");
  PretendingBackend& backend = pretend(fixture, true);
  Decoder decoder(fixture.config, fixture.weights, backend, ComputeType::kFloat32);
  const std::span<const TokenId> ids = fixture.ids;
  KvCache first = decoder.make_cache(KvDType::kFloat32, {}, 64);
  KvCache second = decoder.make_cache(KvDType::kBFloat16, {}, 64);
  decoder.step(ids.first(4), first);
  decoder.step(ids.first(4), second);
  CHECK(backend.num_recordings == 0);
  for (size_t i = 4; i < 12; ++i) {  // two caches by turns, as where texts are compared
    decoder.step(ids.subspan(i, 1), first);
    decoder.step(ids.subspan(i, 1), second);
  }
  CHECK(backend.num_recordings == 2);
  CHECK(backend.num_plays == 14);  // all but the first of each
  first.clear();
  decoder.step(ids.first(1), first);
  CHECK(backend.num_recordings == 2);
  CHECK(first.length() == 1);
}

TEST_CASE("steps past the rope tables' rows are recorded anew and stay exact") {
  ModelFixture host("llama"), device("llama");
  PretendingBackend& backend = pretend(device, true);
  std::vector<std::vector<float>> logits;
  for (ModelFixture* fixture : {&host, &device}) {
    Decoder decoder(fixture->config, fixture->weights, *fixture->backend, ComputeType::kFloat32);
    KvCache cache = decoder.make_cache(KvDType::kFloat16, {}, 300);
    const std::vector<TokenId> prompt(125, 7);
    decoder.step(prompt, cache);
    decoder.step(prompt, cache);
    for (TokenId id = 0; id < 10; ++id) logits.push_back(decoder.step(std::span(&id, 1), cache));
  }
  for (size_t i = 0; i < 10; ++i) CHECK(logits[i] == logits[i + 10]);
  CHECK(backend.num_recordings == 2);
  CHECK(backend.num_plays == 8);  // all but the first with each table
}

TEST_CASE("one token is a decoding step, more are not") {
  for (const bool records : {false, true}) {
    ModelFixture fixture("llama");
    PretendingBackend& backend = pretend(fixture, records);
    Decoder decoder(fixture.config, fixture.weights, backend, ComputeType::kFloat32);
    KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 64);
    decoder.step(std::span(fixture.ids).first(4), cache);
    CHECK(backend.counts["matmul of a decoding step"] == 0);
    decoder.step(std::span(fixture.ids).subspan(4, 1), cache);
    CHECK(backend.counts["matmul of a decoding step"] > 0);
  }
}

TEST_CASE("a recorded step refuses what any step refuses") {
  ModelFixture fixture("llama");
  pretend(fixture, true);
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 4);
  decoder.step(std::span(fixture.ids).first(3), cache);
  decoder.step(std::span(fixture.ids).subspan(3, 1), cache);
  CHECK_THROWS_AS(decoder.step(std::span(fixture.ids).subspan(4, 1), cache), Error);
  const auto outside = static_cast<TokenId>(fixture.config.vocab_size);
  CHECK_THROWS_AS(decoder.step(std::span(&outside, 1), cache), Error);
  CHECK(cache.length() == 4);
}
