#include "eval/continuation_scores.h"

#include <cmath>
#include <numeric>

#include "stored/kv_scales.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::message_of;
using kvcal::test::ModelFixture;

namespace {

const std::vector<LayerKvScales> kNoScales;

std::vector<TokenId> part(const std::vector<TokenId>& ids, size_t begin, size_t end) {
  return {ids.begin() + static_cast<std::ptrdiff_t>(begin),
          ids.begin() + static_cast<std::ptrdiff_t>(end)};
}

/// The score of ids[begin, end) behind those before, from logits [tokens, vocab].
ContinuationScore expected_score(const std::vector<float>& logits, size_t vocab,
                                 const std::vector<TokenId>& ids, size_t begin, size_t end) {
  ContinuationScore score{.is_greedy = true};
  for (size_t i = begin; i < end; ++i) {
    const std::span<const float> row = std::span(logits).subspan((i - 1) * vocab, vocab);
    const auto id = static_cast<size_t>(ids[i]);
    double sum = 0.0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit - row[id]));
    score.log_probability -= std::log(sum);
    score.is_greedy = score.is_greedy && std::ranges::max(row) == row[id];
  }
  return score;
}

/// Texts of several lengths, some of one context.
std::vector<ContinuationIds> texts_of(const std::vector<TokenId>& ids) {
  std::vector<ContinuationIds> texts;
  for (size_t i = 0; i < 9; ++i)
    texts.push_back({part(ids, 0, 1 + 3 * i % 10), part(ids, 1 + 3 * i % 10, 12 + 2 * i)});
  for (const TokenId last : {3, 5, 7}) {
    texts.push_back({part(ids, 0, 6), part(ids, 6, 9)});
    texts.back().continuation.push_back(last);
    texts.push_back({part(ids, 0, 1), {last}});
  }
  return texts;
}

std::vector<double> log_probabilities(const std::vector<ContinuationScore>& scores) {
  std::vector<double> values;
  for (const ContinuationScore& score : scores) values.push_back(score.log_probability);
  return values;
}

}  // namespace

TEST_CASE("continuation scores: those of transformers' logits, for several texts together") {
  for (const std::string name : {"llama", "gemma3_text", "mixtral"}) {
    INFO(name);
    ModelFixture fixture(name);
    Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
    const auto logits = test::read_expected_logits(fixture.folder);
    const auto vocab = static_cast<size_t>(fixture.config.vocab_size);
    std::vector<ContinuationIds> texts;
    std::vector<ContinuationScore> expected;
    for (size_t begin = 1; begin < 9; ++begin)
      for (const size_t end : {begin + 1, begin + 4, size_t{20}}) {
        texts.push_back({part(fixture.ids, 0, begin), part(fixture.ids, begin, end)});
        expected.push_back(expected_score(logits, vocab, fixture.ids, begin, end));
      }
    ContinuationScorer scorer({decoder, KvDType::kFloat32, kNoScales}, 2);
    const auto scores = scorer.score(texts, 5);
    REQUIRE(scores.size() == texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      CHECK(scores[i].log_probability == Approx(expected[i].log_probability).margin(1e-3));
      CHECK(scores[i].is_greedy == expected[i].is_greedy);
    }
  }
}

TEST_CASE("continuation scores: what transformers writes greedily is greedy") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  const auto prompt = fixture.expected.at("greedy_prompt").get<std::vector<TokenId>>();
  const auto greedy = fixture.expected.at("greedy").get<std::vector<TokenId>>();
  auto other = greedy;
  other.back() = (other.back() + 1) % 160;
  const std::vector<ContinuationIds> texts{{prompt, greedy}, {prompt, other}};
  const auto scores =
      ContinuationScorer({decoder, KvDType::kFloat32, kNoScales}, 1).score(texts, 2);
  CHECK(scores.at(0).is_greedy);
  CHECK(!scores.at(1).is_greedy);
  CHECK(scores.at(1).log_probability < scores.at(0).log_probability);
}

TEST_CASE("continuation scores: the others in a call and the slots change no bit") {
  for (const std::string name : {"llama", "mixtral", "jamba", "deepseek_v3", "gemma3n_text"})
    for (const KvDType dtype : {KvDType::kFloat32, KvDType::kFp8E4m3}) {
      INFO(name << " with " << name_of(dtype));
      ModelFixture fixture(name);
      Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
      const auto scales =
          is_fp8(dtype) ? unit_scales(fixture.config) : std::vector<LayerKvScales>();
      ContinuationScorer scorer({decoder, dtype, scales}, 2);
      const std::vector<ContinuationIds> texts = texts_of(fixture.ids);
      std::vector<double> alone;
      for (const ContinuationIds& text : texts)
        alone.push_back(scorer.score(std::span(&text, 1), 1).at(0).log_probability);
      for (const int64_t slots : {1, 3, 64})
        CHECK(log_probabilities(scorer.score(texts, slots)) == alone);
    }
}

TEST_CASE("continuation scores: what texts share goes through the layers once") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  std::vector<ContinuationIds> texts;
  for (TokenId question = 0; question < 3; ++question)
    for (TokenId answer = 0; answer < 4; ++answer) {
      std::vector<TokenId> context = part(fixture.ids, 0, 12);  // examples before all questions
      for (TokenId i = 0; i < 9; ++i) context.push_back(20 + 10 * question + i);
      texts.push_back({context, {60 + answer, 70, 71}});
    }
  const auto tokens_run = [&](int64_t slots) {
    ContinuationScorer scorer({decoder, KvDType::kFloat32, kNoScales}, 1);
    int64_t run = 0;
    scorer.score(texts, slots, &run);
    return run;
  };
  CHECK(tokens_run(8) == 12 + 3 * (9 + 4 * 2));
  CHECK(tokens_run(2) == 12 + 12 * (9 + 2));  // no slot for a question beside the examples
  CHECK(tokens_run(1) == 12 * (12 + 9 + 2));
}

TEST_CASE("continuation scores: those of one text are the scorer's, also of a long one") {
  ModelFixture fixture("mistral_window");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  std::vector<TokenId> ids;
  while (ids.size() < 1400) ids.insert(ids.end(), fixture.ids.begin(), fixture.ids.end());
  ids.resize(1400);
  const auto scales = unit_scales(fixture.config);
  const ScoredModel model{decoder, KvDType::kFp8E4m3, scales};
  const auto nll = Scorer({model}, std::nullopt, 1).score(ids, 1000).models.at(0).nll;
  const double expected = -std::accumulate(nll.begin(), nll.end(), 0.0);
  const std::vector<ContinuationIds> texts{{part(ids, 0, 5), part(ids, 5, 8)},
                                           {part(ids, 0, 1000), part(ids, 1000, 1400)}};
  const auto scores = ContinuationScorer(model, 2).score(texts, 2);
  CHECK(scores.at(1).log_probability == Approx(expected).epsilon(1e-3));
}

TEST_CASE("continuation scores: an empty part is an error") {
  ModelFixture fixture("llama");
  Decoder decoder(fixture.config, fixture.weights, *fixture.backend, ComputeType::kFloat32);
  ContinuationScorer scorer({decoder, KvDType::kFloat32, kNoScales}, 1);
  const auto message = [&](const ContinuationIds& text) {
    const std::vector<ContinuationIds> texts{{{1}, {2}}, text};
    return message_of([&] { scorer.score(texts, 1); });
  };
  CHECK(message({{}, {1}}) == "text 1 has no context");
  CHECK(message({{1}, {}}) == "text 1 has no continuation");
  CHECK(message({{1}, {160}}) == "token id 160 is outside the vocabulary of 160");
  CHECK(message({{160}, {1}}) == "token id 160 is outside the vocabulary of 160");
  CHECK(scorer.score({}, 4).empty());
}
