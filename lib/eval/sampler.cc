#include "eval/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "eval/logit_rows.h"

namespace kvcal {

Sampler::Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {
  if (!(options.temperature >= 0.0) || !std::isfinite(options.temperature))
    fail("temperature is ", options.temperature, ", expected 0 or more");
  if (!(options.top_p > 0.0 && options.top_p <= 1.0))
    fail("top-p is ", options.top_p, ", expected more than 0 and at most 1");
  if (options.top_k < 0) fail("top-k is ", options.top_k, ", expected 0 or more");
}

TokenId Sampler::pick(std::span<const float> logits) {
  if (options_.temperature == 0.0) return argmax(logits);
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), TokenId{0});
  // Ties in id order, so that no sort's whims show.
  std::ranges::stable_sort(order, [&](TokenId a, TokenId b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < order.size())
    order.resize(static_cast<size_t>(options_.top_k));
  const auto largest = static_cast<double>(logits[static_cast<size_t>(order[0])]);
  std::vector<double> weights;
  for (const TokenId id : order)
    weights.push_back(std::exp((static_cast<double>(logits[static_cast<size_t>(id)]) - largest) /
                               options_.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  // The token that reaches top_p is still in.
  double kept = 0.0;
  size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options_.top_p * total))
    kept += weights[count++];
  // 53 random bits: std::uniform_real_distribution differs between libraries.
  const double uniform = static_cast<double>(random_() >> 11) * 0x1p-53;
  double remaining = uniform * kept;
  for (size_t i = 0; i < count; ++i) {
    remaining -= weights[i];
    if (remaining < 0.0) return order[i];
  }
  return order[count - 1];
}

}  // namespace kvcal
