#include "eval/logit_rows.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace kvcal {

TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

LogitRow describe(std::span<const float> logits) {
  LogitRow row{.top = argmax(logits)};
  const auto largest = static_cast<double>(logits[static_cast<size_t>(row.top)]);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  row.log_sum = largest + std::log(sum);
  return row;
}

LogitRow describe(std::span<const float> logits, std::span<float> probabilities) {
  KVCAL_CHECK(logits.size() == probabilities.size());
  const LogitRow row = describe(logits);
  for (size_t i = 0; i < logits.size(); ++i)
    probabilities[i] = static_cast<float>(std::exp(static_cast<double>(logits[i]) - row.log_sum));
  return row;
}

double kl_divergence(std::span<const float> p_logits, const LogitRow& p,
                     std::span<const float> probabilities, std::span<const float> q_logits,
                     const LogitRow& q) {
  KVCAL_CHECK(p_logits.size() == q_logits.size() && p_logits.size() == probabilities.size());
  double sum = 0.0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = static_cast<double>(p_logits[i]) - p.log_sum;
    const double log_q = static_cast<double>(q_logits[i]) - q.log_sum;
    sum += static_cast<double>(probabilities[i]) * (log_p - log_q);
  }
  // Rounding alone can take a zero below it.
  return std::max(sum, 0.0);
}

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  std::vector<float> probabilities(p_logits.size());
  const LogitRow p = describe(p_logits, probabilities);
  return kl_divergence(p_logits, p, probabilities, q_logits, describe(q_logits));
}

}  // namespace kvcal
