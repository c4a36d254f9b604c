#pragma once

#include <span>

#include "core/number.h"

namespace kvcal {

/// The lowest of the most likely tokens.
TokenId argmax(std::span<const float> logits);

/// One row of logits: all of its softmax but the exponentials.
struct LogitRow {
  double log_sum = 0.0;  ///< ln of the sum of e to the logits
  TokenId top = 0;
};

/// Sums in double precision.
LogitRow describe(std::span<const float> logits);

/// describe, and the probabilities of all tokens.
LogitRow describe(std::span<const float> logits, std::span<float> probabilities);

/// KL(p || q) in nats of the distributions two rows stand for; probabilities: of p. 0 exactly for
/// equal rows.
double kl_divergence(std::span<const float> p_logits, const LogitRow& p,
                     std::span<const float> probabilities, std::span<const float> q_logits,
                     const LogitRow& q);
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

}  // namespace kvcal
