#include "eval/likelihood.h"

#include <cmath>
#include <numeric>

#include "eval/logit_rows.h"
#include "stored/kv_scales.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"
#include "support/step_all.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;
using kvcal::test::ModelFixture;

namespace {

const std::vector<LayerKvScales> kNoScales;

/// -ln of what row gives to id, summed as it is written down.
double nll_of(const float* row, size_t vocab, TokenId id) {
  double sum = 0.0;
  for (size_t i = 0; i < vocab; ++i)
    sum += std::exp(static_cast<double>(row[i]) - static_cast<double>(row[id]));
  return std::log(sum);
}

SequenceScores score_one(const ScoredModel& model, std::span<const TokenId> ids) {
  return Scorer({model}, std::nullopt, 1).score(ids);
}

Likelihood of_one(const SequenceScores& scores, size_t model = 0) {
  return summarize(std::span(&scores, 1), model);
}

}  // namespace

TEST_CASE("the likelihood of a text is that of transformers' logits") {
  // The frequencies of the second are those of all its tokens, also of the last, which is not fed.
  const std::string name = GENERATE("llama", "llama_rope_dynamic");
  for (const std::string& backend : test::backend_names()) {
    INFO(name << " on " << backend);
    ModelFixture fixture(name, backend);
    Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
    const SequenceScores scored = score_one({decoder, KvDType::kFloat32, kNoScales}, fixture.ids);
    const std::vector<double>& nll = scored.models.at(0).nll;
    const auto logits = test::read_expected_logits(fixture.folder);
    const auto vocab = static_cast<size_t>(fixture.config.vocab_size);
    REQUIRE(nll.size() == fixture.ids.size() - 1);
    double total = 0.0;
    for (size_t i = 0; i + 1 < fixture.ids.size(); ++i) {
      const double expected = nll_of(&logits[i * vocab], vocab, fixture.ids[i + 1]);
      CHECK(nll[i] == Approx(expected).margin(1e-4));
      CHECK(scored.positions.at(i) == static_cast<int64_t>(i + 1));
      total += expected;
    }
    const Likelihood result = of_one(scored);
    CHECK(result.num_tokens == static_cast<int64_t>(fixture.ids.size()) - 1);
    CHECK(result.nll == Approx(total / static_cast<double>(fixture.ids.size() - 1)).margin(1e-5));
    CHECK(result.perplexity == Approx(std::exp(result.nll)));
    CHECK(!result.kl_mean);
  }
}

TEST_CASE("KL is from the reference to each model, token by token") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const auto scales = unit_scales(fixture.config);
  const ScoredModel plain{decoder, KvDType::kFloat32, kNoScales};
  const ScoredModel coarse{decoder, KvDType::kFp8E5m2, scales};
  // Both in one pass, and more threads than rows of the last block.
  const SequenceScores scored = Scorer({plain, coarse}, plain, 2).score(fixture.ids);
  for (const double kl : scored.models.at(0).kl) CHECK(kl == 0.0);
  CHECK(of_one(scored, 0).top1_agreement == 1.0);
  CHECK(of_one(scored, 0).perplexity_increase == 0.0);
  const double alone = of_one(score_one(plain, fixture.ids)).perplexity;
  const Likelihood result = of_one(scored, 1);
  CHECK(result.reference_perplexity.value() == alone);
  CHECK(result.perplexity_increase.value() ==
        Approx(result.perplexity / alone - 1.0).margin(1e-12));
  CHECK(scored.models.at(1).nll == score_one(coarse, fixture.ids).models.at(0).nll);

  const auto logits_of = [&](KvDType dtype, const std::vector<LayerKvScales>& of) {
    KvCache cache = decoder.make_cache(dtype, of, 64);
    return test::step_all(decoder, fixture.ids, cache);
  };
  const auto p = logits_of(KvDType::kFloat32, {}), q = logits_of(KvDType::kFp8E5m2, scales);
  const auto vocab = static_cast<size_t>(fixture.config.vocab_size);
  const TokenScores& other = scored.models.at(1);
  REQUIRE(other.kl.size() == fixture.ids.size() - 1);
  double largest = 0.0;
  for (size_t i = 0; i < other.kl.size(); ++i) {
    double expected = 0.0;
    for (size_t id = 0; id < vocab; ++id) {
      const double log_p = -nll_of(&p[i * vocab], vocab, static_cast<TokenId>(id));
      const double log_q = -nll_of(&q[i * vocab], vocab, static_cast<TokenId>(id));
      expected += std::exp(log_p) * (log_p - log_q);
    }
    CHECK(other.kl[i] == Approx(expected).margin(1e-9));
    largest = std::max(largest, expected);
  }
  CHECK(*result.kl_max == Approx(largest).margin(1e-9));
  CHECK(*result.kl_mean > 0.0);
  CHECK(*result.kl_p99 <= *result.kl_max);
}

TEST_CASE("a long sequence is scored as one, whatever the steps and blocks") {
  ModelFixture fixture("mistral_window");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  std::vector<TokenId> ids;
  while (ids.size() < 1100) ids.insert(ids.end(), fixture.ids.begin(), fixture.ids.end());
  ids.resize(1100);
  const std::vector<double> nll =
      score_one({decoder, KvDType::kFloat32, kNoScales}, ids).models.at(0).nll;
  KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 1100);
  const auto logits = test::step_all(decoder, ids, cache);
  const auto vocab = static_cast<size_t>(fixture.config.vocab_size);
  REQUIRE(nll.size() == 1099);
  for (const size_t i : {0u, 127u, 128u, 1022u, 1023u, 1024u, 1098u})
    CHECK(nll[i] == Approx(nll_of(&logits[i * vocab], vocab, ids[i + 1])).margin(1e-6));
}

TEST_CASE("frequencies that depend on the length are those of the whole sequence in every step") {
  ModelFixture fixture("llama_rope_dynamic");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  std::vector<TokenId> ids;
  while (ids.size() < 1101) ids.insert(ids.end(), fixture.ids.begin(), fixture.ids.end());
  ids.resize(1101);
  const KvDType plain_dtype = unquantized_cache_dtype(fixture.config);
  // One step, whose frequencies are those of its 1101 tokens.
  KvCache cache = decoder.make_cache(plain_dtype, {}, 1101);
  const auto logits = test::step_all(decoder, ids, cache);
  const auto vocab = static_cast<size_t>(fixture.config.vocab_size);
  const auto scales = unit_scales(fixture.config);
  Scorer scorer({{decoder, KvDType::kFp8E5m2, scales}},
                ScoredModel{decoder, plain_dtype, kNoScales}, 1);
  const SequenceScores scores = scorer.score(ids);
  for (const size_t i : {0u, 500u, 1023u, 1024u, 1099u})
    CHECK(scores.reference_nll.at(i) ==
          Approx(nll_of(&logits[i * vocab], vocab, ids[i + 1])).margin(1e-5));
  std::vector<int64_t> layers(static_cast<size_t>(fixture.config.num_hidden_layers));
  std::iota(layers.begin(), layers.end(), int64_t{0});
  CHECK(scorer.score_layers(ids, 1, 0, layers).reference_nll == scores.reference_nll);
}

TEST_CASE("tokens of the context are read and not scored") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const ScoredModel model{decoder, KvDType::kFloat32, kNoScales};
  const SequenceScores all = score_one(model, fixture.ids);
  const size_t first = fixture.ids.size() - 3;
  const SequenceScores end = Scorer({model}, std::nullopt, 1).score(fixture.ids, first);
  const auto& nll = all.models.at(0).nll;
  CHECK(end.models.at(0).nll == std::vector<double>(nll.end() - 3, nll.end()));
  CHECK(end.positions.front() == static_cast<int64_t>(first));
  CHECK(Scorer({model}, std::nullopt, 1).score(fixture.ids, fixture.ids.size()).positions.empty());
}

TEST_CASE("a layer's KL is that of a cache that ignores all others") {
  const std::string name = GENERATE("llama", "jamba", "deepseek_v3", "gemma3_text");
  CAPTURE(name);
  ModelFixture fixture(name);
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const auto scales = unit_scales(fixture.config);
  const KvDType plain_dtype = unquantized_cache_dtype(fixture.config);
  const ScoredModel plain{decoder, plain_dtype, kNoScales};
  std::vector<int64_t> layers;
  std::vector<std::vector<LayerKvScales>> only;
  for (int64_t layer = 0; layer < fixture.config.num_hidden_layers; ++layer)
    if (fixture.config.has_attention(layer)) layers.push_back(layer);
  for (const int64_t layer : layers) {
    only.push_back(scales);
    for (auto& one : only.back()) one.ignored = true;
    only.back()[static_cast<size_t>(layer)] = scales[static_cast<size_t>(layer)];
  }
  std::vector<ScoredModel> alone;
  for (const auto& of : only) alone.push_back({decoder, KvDType::kFp8E5m2, of});
  Scorer scorer({{decoder, KvDType::kFp8E5m2, scales}}, plain, 1);
  REQUIRE(scorer.can_score_layers(0));
  const SequenceScores found = scorer.score_layers(fixture.ids, 2, 0, layers);
  const SequenceScores expected = Scorer(alone, plain, 1).score(fixture.ids, 2);
  REQUIRE(found.models.size() == layers.size());
  CHECK(found.positions == expected.positions);
  CHECK(found.reference_nll == expected.reference_nll);
  for (size_t i = 0; i < layers.size(); ++i) {
    CHECK(found.models[i].nll == expected.models[i].nll);
    CHECK(found.models[i].kl == expected.models[i].kl);
    CHECK(of_one(found, i).kl_mean > 0.0);
  }
}

TEST_CASE("layers can be told apart only against the same model unquantized") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  Decoder other(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const auto scales = unit_scales(fixture.config);
  const ScoredModel fp8{decoder, KvDType::kFp8E4m3, scales};
  const ScoredModel plain{decoder, unquantized_cache_dtype(fixture.config), kNoScales};
  CHECK(Scorer({fp8}, plain, 1).can_score_layers(0));
  CHECK_FALSE(Scorer({fp8}, std::nullopt, 1).can_score_layers(0));
  CHECK_FALSE(Scorer({plain}, plain, 1).can_score_layers(0));
  CHECK_FALSE(Scorer({fp8}, fp8, 1).can_score_layers(0));
  CHECK_FALSE(Scorer({{other, KvDType::kFp8E4m3, scales}}, plain, 1).can_score_layers(0));
}

namespace {

/// Of two models: the first has no likelihood but KL.
SequenceScores made_up(std::vector<int64_t> positions, std::vector<double> reference,
                       std::vector<double> nll, std::vector<double> kl, std::vector<uint8_t> same) {
  return {std::move(positions), std::move(reference), {{{}, {}, {}}, {nll, kl, same}}};
}

}  // namespace

TEST_CASE("sequences are joined in order") {
  const std::vector<SequenceScores> sequences{
      made_up({1, 2}, {1.0, 1.0}, {1.0, 2.0}, {0.25, 0.5}, {1, 0}), made_up({}, {}, {}, {}, {}),
      made_up({1}, {1.0}, {6.0}, {0.75}, {1})};
  const Likelihood result = summarize(sequences, 1);
  CHECK(result.num_tokens == 3);
  CHECK(result.nll == Approx(3.0));
  CHECK(result.kl_mean == Approx(0.5));
  CHECK(result.kl_p99 == 0.75);
  CHECK(result.top1_agreement == Approx(2.0 / 3.0));
  CHECK(result.perplexity_increase == Approx(std::exp(2.0) - 1.0));
}

TEST_CASE("the difference of two models' KL is that of the same tokens") {
  SequenceScores first = made_up({1, 2}, {1.0, 1.0}, {1.0, 2.0}, {0.5, 0.25}, {1, 0});
  first.models[0].kl = {0.25, 0.5};
  SequenceScores second = made_up({1}, {1.0}, {6.0}, {1.0}, {1});
  second.models[0].kl = {0.25};
  // 0.25, -0.25 and 0.75: a mean of 0.25 with a standard deviation of 0.5.
  const PairedDifference found = kl_difference(std::vector{first, second}, 1, 0);
  CHECK(found.mean == Approx(0.25));
  CHECK(found.standard_error == Approx(0.5 / std::sqrt(3.0)));
  CHECK(contains(message_of([] { kl_difference({}, 1, 0); }), "there was no reference"));
}

TEST_CASE("positions are averaged in octaves") {
  const std::vector<SequenceScores> sequences{
      made_up({1, 2, 3}, {1.0, 3.0, 5.0}, {2.0, 4.0, 8.0}, {0.5, 1.0, 3.0}, {1, 1, 1}),
      made_up({3, 8}, {7.0, 1.0}, {9.0, 2.0}, {5.0, 0.25}, {1, 1})};
  const auto buckets = by_position(sequences, 1);
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].first == 1);
  CHECK(buckets[0].last == 1);
  CHECK(buckets[1].first == 2);
  CHECK(buckets[1].last == 3);
  CHECK(buckets[1].num_tokens == 3);
  CHECK(buckets[1].nll == Approx(7.0));
  CHECK(buckets[1].kl_mean == Approx(3.0));
  CHECK(buckets[1].reference_nll == Approx(5.0));
  // KL of 1, 3 and 5, a standard deviation of 2; NLL of 4, 8 and 9: of the root of 7.
  CHECK(buckets[1].kl_stderr == Approx(2.0 / std::sqrt(3.0)));
  CHECK(buckets[1].reference_nll_stderr == Approx(2.0 / std::sqrt(3.0)));
  CHECK(buckets[1].nll_stderr == Approx(std::sqrt(7.0 / 3.0)));
  CHECK(buckets[2].kl_stderr == 0.0);
  CHECK(buckets[2].first == 8);
  CHECK(buckets[2].last == 15);
  CHECK(buckets[2].kl_mean == 0.25);
}

TEST_CASE("what cannot be scored is refused") {
  CHECK(contains(message_of([] { summarize({}, 0); }), "no token to score"));
  ModelFixture fixture("llama"), other("gpt2");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  Decoder stranger(other.config, other.weights, *other.backend, ComputeType::kFloat32);
  REQUIRE(other.config.vocab_size != fixture.config.vocab_size);
  const ScoredModel model{decoder, KvDType::kFloat32, kNoScales};
  const ScoredModel foreign{stranger, KvDType::kFloat32, kNoScales};
  CHECK(contains(message_of([&] { Scorer({model}, foreign, 1); }),
                 "the vocabulary has 160 tokens, that of the reference "));
  CHECK(contains(message_of([&] {
                   Scorer({model, foreign}, std::nullopt, 1);
                 }),
                 "that of the first model 160"));
  const TokenId lone = 5;
  CHECK(score_one(model, std::span(&lone, 1)).models.at(0).nll.empty());
}
