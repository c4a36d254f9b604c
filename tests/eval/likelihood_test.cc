#include "eval/likelihood.h"

#include <cmath>

#include "eval/sampler.h"
#include "model/kv_scales.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

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

}  // namespace

TEST_CASE("the likelihood of a text is that of transformers' logits") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  TokenScores scores;
  score_tokens({decoder, KvDType::kFloat32, kNoScales}, nullptr, fixture.ids, scores);
  const auto logits = test::read_expected_logits(fixture.folder);
  const auto vocab = static_cast<size_t>(fixture.config.vocab_size);
  REQUIRE(scores.nll.size() == fixture.ids.size() - 1);
  double total = 0.0;
  for (size_t i = 0; i + 1 < fixture.ids.size(); ++i) {
    const double expected = nll_of(&logits[i * vocab], vocab, fixture.ids[i + 1]);
    CHECK(scores.nll[i] == Approx(expected).margin(1e-4));
    total += expected;
  }
  const Likelihood result = summarize(scores);
  CHECK(result.num_tokens == static_cast<int64_t>(fixture.ids.size()) - 1);
  CHECK(result.nll == Approx(total / static_cast<double>(fixture.ids.size() - 1)).margin(1e-5));
  CHECK(result.perplexity == Approx(std::exp(result.nll)));
  CHECK(!result.kl_mean);
}

TEST_CASE("KL is from the reference to the model, token by token") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const auto scales = unit_scales(fixture.config);
  const ScoredModel plain{decoder, KvDType::kFloat32, kNoScales};
  const ScoredModel coarse{decoder, KvDType::kFp8E5m2, scales};
  TokenScores same, other;
  score_tokens(plain, &plain, fixture.ids, same);
  for (const double kl : same.kl) CHECK(kl == 0.0);
  CHECK(summarize(same).top1_agreement == 1.0);
  CHECK(summarize(same).perplexity_increase == 0.0);
  TokenScores alone, changed;
  score_tokens(plain, nullptr, fixture.ids, alone);
  score_tokens(coarse, &plain, fixture.ids, changed);
  const Likelihood compared = summarize(changed);
  CHECK(compared.reference_perplexity.value() == Approx(summarize(alone).perplexity));
  CHECK(compared.perplexity_increase.value() ==
        Approx(compared.perplexity / summarize(alone).perplexity - 1.0).margin(1e-12));

  score_tokens(coarse, &plain, fixture.ids, other);
  const auto logits_of = [&](KvDType dtype, const std::vector<LayerKvScales>& of) {
    KvCache cache = decoder.make_cache(dtype, of, 64);
    return decoder.step_all(fixture.ids, cache);
  };
  const auto p = logits_of(KvDType::kFloat32, {}), q = logits_of(KvDType::kFp8E5m2, scales);
  const auto vocab = static_cast<size_t>(fixture.config.vocab_size);
  REQUIRE(other.kl.size() == fixture.ids.size() - 1);
  double largest = 0.0;
  for (size_t i = 0; i < other.kl.size(); ++i) {
    const double expected = kl_divergence(std::span(p).subspan(i * vocab, vocab),
                                          std::span(q).subspan(i * vocab, vocab));
    CHECK(other.kl[i] == Approx(expected).margin(1e-9));
    largest = std::max(largest, expected);
  }
  const Likelihood result = summarize(other);
  CHECK(*result.kl_max == Approx(largest).margin(1e-9));
  CHECK(*result.kl_mean > 0.0);
  CHECK(*result.kl_p99 <= *result.kl_max);
}

TEST_CASE("a long sequence is scored as one, whatever the steps") {
  ModelFixture fixture("mistral_window");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  std::vector<TokenId> ids;
  while (ids.size() < 300) ids.insert(ids.end(), fixture.ids.begin(), fixture.ids.end());
  ids.resize(300);
  TokenScores scores;
  score_tokens({decoder, KvDType::kFloat32, kNoScales}, nullptr, ids, scores);
  KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, 300);
  const auto logits = decoder.step_all(ids, cache);
  const auto vocab = static_cast<size_t>(fixture.config.vocab_size);
  REQUIRE(scores.nll.size() == 299);
  for (const size_t i : {0u, 254u, 255u, 256u, 257u, 298u})
    CHECK(scores.nll[i] == Approx(nll_of(&logits[i * vocab], vocab, ids[i + 1])).margin(1e-6));
}

TEST_CASE("sequences are joined in order") {
  const TokenScores first{{1.0, 2.0}, {1.0, 1.0}, {0.25, 0.5}, 1};
  const TokenScores second{{6.0}, {1.0}, {0.75}, 1}, none{};
  const TokenScores all = joined(std::vector{first, none, second});
  CHECK(all.nll == std::vector{1.0, 2.0, 6.0});
  CHECK(all.kl == std::vector{0.25, 0.5, 0.75});
  const Likelihood result = summarize(all);
  CHECK(result.nll == Approx(3.0));
  CHECK(result.kl_mean == Approx(0.5));
  CHECK(result.top1_agreement == Approx(2.0 / 3.0));
}

TEST_CASE("what cannot be scored is refused") {
  CHECK(contains(message_of([] { summarize({}); }), "no token to score"));
  ModelFixture fixture("llama"), other("gpt2");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  Decoder stranger(other.config, other.weights, *other.backend, ComputeType::kFloat32);
  REQUIRE(other.config.vocab_size != fixture.config.vocab_size);
  const ScoredModel model{decoder, KvDType::kFloat32, kNoScales};
  const ScoredModel reference{stranger, KvDType::kFloat32, kNoScales};
  TokenScores scores;
  CHECK(contains(message_of([&] { score_tokens(model, &reference, fixture.ids, scores); }),
                 "the vocabulary has 160 tokens, that of the reference "));
  const TokenId lone = 5;
  score_tokens(model, nullptr, std::span(&lone, 1), scores);
  CHECK(scores.nll.empty());
}
