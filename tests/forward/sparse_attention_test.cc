// Sparse attention: an indexer selects the keys that attention reads. Logits of whole sequences are
// compared with transformers in the tests of the families.
#include <algorithm>

#include "forward/decoder.h"
#include "forward/layerwise.h"
#include "forward/memory_plan.h"
#include "forward/support/family_check.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::ModelFixture;

namespace {

const std::vector<std::string> kSparse{"deepseek_v32_sparse", "glm_moe_dsa_sparse", "qwen4_exp"};

KvCache cache_of(const Decoder& decoder, int64_t slots = 1) {
  return decoder.make_cache(KvDType::kFloat32, {}, 40, slots);
}

std::vector<float> row_of(const std::vector<float>& logits, size_t row, size_t width) {
  const auto first = logits.begin() + static_cast<std::ptrdiff_t>(row * width);
  return {first, first + static_cast<std::ptrdiff_t>(width)};
}

std::vector<std::byte> bytes_in(const Buffer& buffer, Backend& backend) {
  std::vector<std::byte> bytes(buffer.size());
  backend.copy_out(buffer.data(), bytes);
  return bytes;
}

}  // namespace

TEST_CASE("sparse attention: tokens one by one give transformers' logits of the whole text") {
  for (const std::string& name : kSparse)
    for (const std::string& backend : test::backend_names()) {
      INFO(name << " on " << backend);
      ModelFixture fixture(name, backend);
      const std::vector<float> expected = test::read_expected_logits(fixture.folder);
      const size_t vocab = static_cast<size_t>(fixture.config.vocab_size);
      REQUIRE(fixture.config.selects_keys(std::ssize(fixture.ids)));
      Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
      KvCache cache = cache_of(decoder);
      const std::span<const TokenId> ids = fixture.ids;
      // A prompt without a selection, one token, a part that reaches into the selection, the rest.
      for (size_t done = 0; done < ids.size();) {
        const size_t count = done == 0 ? 5 : done == 6 ? 9 : 1;
        const std::vector<float> logits = decoder.step(ids.subspan(done, count), cache);
        done += count;
        INFO("token " << done);
        CHECK(test::distance(logits, row_of(expected, done - 1, vocab)) <= test::kFloat32Tolerance);
      }
    }
}

TEST_CASE("sparse attention: sequences of one cache select keys of their own") {
  for (const std::string& name : kSparse) {
    ModelFixture fixture(name);
    Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
    const std::span<const TokenId> ids = fixture.ids;
    const std::vector<std::span<const TokenId>> texts{ids.first(18), ids.subspan(4, 8),
                                                      ids.subspan(2)};
    REQUIRE(fixture.config.selects_keys(std::ssize(texts.back())));
    KvCache cache = cache_of(decoder, 4);
    std::vector<Decoder::SequenceTokens> sequences;
    for (size_t i = 0; i < texts.size(); ++i)
      sequences.push_back({static_cast<int64_t>(i) + 1, texts[i].first(texts[i].size() - 1)});
    decoder.step_together(sequences, cache);
    for (size_t i = 0; i < texts.size(); ++i) sequences[i].ids = texts[i].last(1);
    const std::vector<float> together = decoder.step_together(sequences, cache);
    for (size_t i = 0; i < texts.size(); ++i) {
      KvCache own = cache_of(decoder);
      INFO(name << ", sequence " << i);
      const std::vector<float> alone = decoder.step(texts[i], own);
      CHECK(test::distance(row_of(together, i, alone.size()), alone) < 1e-4);
    }
  }
}

TEST_CASE("sparse attention: texts that are not longer than the selection get the same bytes") {
  for (const std::string& name : kSparse)
    for (const std::string& backend : test::backend_names()) {
      ModelFixture fixture(name, backend);
      fixture.ids.resize(static_cast<size_t>(fixture.config.indexer.topk));
      const std::vector<float> sparse = test::all_logits(fixture, ComputeType::kFloat32);
      fixture.config.indexer.topk = 1000;
      CHECK(sparse == test::all_logits(fixture, ComputeType::kFloat32));
    }
}

TEST_CASE("sparse attention: a branch leaves the selection of the run that it leaves") {
  ModelFixture fixture("glm_moe_dsa_sparse");
  const auto layers = static_cast<size_t>(fixture.config.num_hidden_layers);
  REQUIRE_FALSE(fixture.config.layer(2).has_indexer);  // and layer 3 makes another selection
  REQUIRE(fixture.config.layer(3).has_indexer);
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  KvCache cache = cache_of(decoder), other = cache_of(decoder);
  const std::vector<LayerKvScales> coarse(layers, {{Scale{0.5f}}, {Scale{0.5f}}, false});
  KvCache coarse_cache = decoder.make_cache(KvDType::kFp8E4m3, coarse, 40);
  const std::vector<Decoder::Branch> branches{{2, coarse_cache}};
  const auto with = decoder.step_branches(fixture.ids, cache, branches, 0);
  const auto without = decoder.step_branches(fixture.ids, other, {}, 0);
  CHECK(bytes_in(with.back(), *fixture.backend) == bytes_in(without.back(), *fixture.backend));
  CHECK(bytes_in(with.front(), *fixture.backend) != bytes_in(without.back(), *fixture.backend));
}

TEST_CASE("sparse attention: the memory plan and caches count an indexer where it selects keys") {
  const ModelFixture fixture("glm_moe_dsa_sparse");
  const auto needs = [&](int64_t longest) {
    const std::vector<int64_t> lengths{5, longest};
    return memory_needs(fixture.config, fixture.weights, *fixture.backend, {}, lengths);
  };
  const IndexerConfig& indexer = fixture.config.indexer;
  CHECK(needs(indexer.topk).per_token == needs(5).per_token);
  const auto own = static_cast<uint64_t>(indexer.query_width() + 2 * indexer.head_dim +
                                         indexer.heads + fixture.config.hidden_size);
  // A word of the selection, and another that layers pass on.
  CHECK(needs(24).per_token == needs(5).per_token + (own + 2) * sizeof(float) +
                                   fixture.backend->selection_bytes_per_key());
  const auto slot = [&](int64_t capacity) {
    return KvCache::bytes_per_slot(fixture.config, KvDType::kFloat32, {}, capacity);
  };
  const uint64_t token = KvCache::bytes_per_token(fixture.config, KvDType::kFloat32, {});
  CHECK(slot(indexer.topk) == static_cast<uint64_t>(indexer.topk) * token);
  const auto keys = static_cast<uint64_t>(3 * indexer.head_dim) * sizeof(float);
  CHECK(slot(24) == 24 * (token + keys));
}

TEST_CASE("sparse attention: sequences of more pools of keys than an indexer selects are refused") {
  ModelFixture fixture("glm5_next", "cpu");
  const Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  CHECK_NOTHROW(decoder.make_cache(KvDType::kFloat32, {}, 67));  // 16 pools of 4, and 3 keys
  CHECK(test::contains(
      test::message_of([&] { decoder.make_cache(KvDType::kFloat32, {}, 68); }),
      "a sequence of 68 tokens: of more than 67, attention of glm5_next reads blocks of keys"));
}

TEST_CASE("sparse attention: sequences whose blocks of keys an indexer would select are refused") {
  ModelFixture fixture("minimax_m3_vl", "cpu");
  CHECK(fixture.config.most_tokens == 64);  // 8 blocks of 8 keys
  const Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  CHECK_NOTHROW(decoder.make_cache(KvDType::kFloat32, {}, 64));
  const std::string expected =
      "a sequence of 65 tokens: of more than 64, attention of minimax_m3 reads blocks of keys that "
      "its indexer selects, which is not run; expected up to 64 tokens";
  CHECK(test::message_of([&] { decoder.make_cache(KvDType::kFloat32, {}, 65); }) == expected);
  const std::vector<TokenId> tokens(65, 3);
  const std::vector<std::span<const TokenId>> samples{tokens};
  SilentDiagnostics silent;
  CHECK(test::message_of([&] {
          LayerwiseForward(fixture.config, fixture.weights, *fixture.backend, samples,
                           {.compute_type = ComputeType::kFloat32}, silent);
        }) == expected);
}
