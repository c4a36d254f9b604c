#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "core/token.h"

namespace kvcal {

struct SamplingOptions {
  double temperature = 0.0;  ///< 0: greedy
  double top_p = 1.0;        ///< in (0, 1]
  int64_t top_k = 0;         ///< 0: all
  uint64_t seed = 0;
};

/// Picks the next token from logits. Temperature, then top-k, then top-p, as transformers' generate
/// does. The same seed gives the same tokens on every machine. Greedy takes the lowest id among
/// equals.
class Sampler {
 public:
  /// Throws Error for options out of range.
  explicit Sampler(const SamplingOptions& options);
  TokenId pick(std::span<const float> logits);

 private:
  SamplingOptions options_;
  std::mt19937_64 random_;
};

}  // namespace kvcal
