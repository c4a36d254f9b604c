#include "eval/likelihood.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/interrupt.h"
#include "eval/sampler.h"

namespace kvcal {
namespace {

/// Logits of a step are [tokens, vocabulary]: 256 tokens of 150,000 are 150 MB.
constexpr size_t kStepTokens = 256;

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The least value that fraction of all do not exceed.
double quantile_of(std::vector<double> values, double fraction) {
  std::ranges::sort(values);
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

KvCache cache_for(const ScoredModel& model, size_t tokens) {
  return model.decoder.make_cache(model.cache_dtype, model.scales, static_cast<int64_t>(tokens));
}

}  // namespace

void score_tokens(const ScoredModel& model, const ScoredModel* reference,
                  std::span<const TokenId> ids, TokenScores& scores) {
  if (ids.size() < 2) return;
  const auto vocab = static_cast<size_t>(model.decoder.config().vocab_size);
  if (reference && reference->decoder.config().vocab_size != model.decoder.config().vocab_size)
    fail("the vocabulary has ", vocab, " tokens, that of the reference ",
         reference->decoder.config().vocab_size);
  // The last token predicts nothing that could be scored.
  const std::span fed = ids.first(ids.size() - 1);
  KvCache cache = cache_for(model, fed.size());
  std::optional<KvCache> reference_cache;
  if (reference) reference_cache.emplace(cache_for(*reference, fed.size()));
  for (size_t first = 0; first < fed.size(); first += kStepTokens) {
    throw_if_interrupted();
    const std::span step = fed.subspan(first, std::min(kStepTokens, fed.size() - first));
    const std::vector<float> logits = model.decoder.step_all(step, cache);
    const std::vector<float> expected =
        reference ? reference->decoder.step_all(step, *reference_cache) : std::vector<float>();
    for (size_t i = 0; i < step.size(); ++i) {
      const std::span row = std::span(logits).subspan(i * vocab, vocab);
      scores.nll.push_back(-log_softmax(row)[static_cast<size_t>(ids[first + i + 1])]);
      if (!reference) continue;
      const std::span reference_row = std::span(expected).subspan(i * vocab, vocab);
      scores.reference_nll.push_back(
          -log_softmax(reference_row)[static_cast<size_t>(ids[first + i + 1])]);
      scores.kl.push_back(kl_divergence(reference_row, row));
      scores.same_top += argmax(row) == argmax(reference_row) ? 1 : 0;
    }
  }
}

TokenScores joined(std::span<const TokenScores> sequences) {
  TokenScores all;
  for (const TokenScores& scores : sequences) {
    all.nll.insert(all.nll.end(), scores.nll.begin(), scores.nll.end());
    all.reference_nll.insert(all.reference_nll.end(), scores.reference_nll.begin(),
                             scores.reference_nll.end());
    all.kl.insert(all.kl.end(), scores.kl.begin(), scores.kl.end());
    all.same_top += scores.same_top;
  }
  return all;
}

Likelihood summarize(const TokenScores& scores) {
  if (scores.nll.empty()) fail("no token to score: a sequence needs two or more");
  Likelihood result;
  result.num_tokens = static_cast<int64_t>(scores.nll.size());
  result.nll = mean_of(scores.nll);
  result.perplexity = std::exp(result.nll);
  if (scores.kl.empty()) return result;
  result.kl_mean = mean_of(scores.kl);
  result.kl_p99 = quantile_of(scores.kl, 0.99);
  result.kl_max = std::ranges::max(scores.kl);
  result.top1_agreement =
      static_cast<double>(scores.same_top) / static_cast<double>(scores.nll.size());
  const double reference_nll = mean_of(scores.reference_nll);
  result.reference_perplexity = std::exp(reference_nll);
  result.perplexity_increase = std::expm1(result.nll - reference_nll);
  return result;
}

}  // namespace kvcal
