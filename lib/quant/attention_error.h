#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace kvcal {

/// Sums over some queries of one head: what attention over quantized K and V differs by from
/// attention over unquantized ones.
struct AttentionError {
  double error = 0;   ///< squared distance of the head's outputs
  double output = 0;  ///< squared length of the unquantized outputs
  double kl = 0;      ///< KL divergence of the softmax weights from the unquantized ones, in nats
  int64_t queries = 0;

  void add(const AttentionError& more) {
    error += more.error;
    output += more.output;
    kl += more.kl;
    queries += more.queries;
  }
  /// Root of the squared distance over the squared length; 0 where all outputs are 0.
  double relative_error() const { return output > 0 ? std::sqrt(error / output) : 0.0; }
  /// Mean over the queries.
  double mean_kl() const { return queries > 0 ? kl / static_cast<double>(queries) : 0.0; }
};

inline AttentionError sum_of(std::span<const AttentionError> heads) {
  AttentionError all;
  for (const AttentionError& head : heads) all.add(head);
  return all;
}

/// Damage that a cache does to one layer's attention, [heads of Q].
struct AttentionDamage {
  std::vector<AttentionError> calibrated;  ///< with the scales made
  std::vector<AttentionError> unit;        ///< with scale 1.0
};

/// Samples whose attention a calibration compares: the first ones, until they have so many tokens
/// together or that share of all tokens, and no more than this number. So the choice depends on the
/// data set alone, memory is bounded, and the comparison takes a small part of the time.
inline constexpr int64_t kComparedTokens = 2048, kComparedSamples = 16;
inline constexpr int64_t kTokensForEachCompared = 4;
/// Queries of each of these samples, evenly spaced, the last one among them.
inline constexpr int64_t kComparedQueries = 16;

/// lengths: of all samples, in tokens.
inline int64_t compared_samples(std::span<const int64_t> lengths) {
  const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t wanted = std::min(kComparedTokens, all / kTokensForEachCompared + 1);
  int64_t count = 0, tokens = 0;
  while (count < std::ssize(lengths) && count < kComparedSamples && tokens < wanted)
    tokens += lengths[static_cast<size_t>(count++)];
  return count;
}

}  // namespace kvcal
