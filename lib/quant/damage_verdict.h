#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

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

/// Limits of the accuracy that a KV cache may cost.
struct DamageLimits {
  double kl_mean = 0.0;              ///< nats a token, from the same model with its 16-bit cache
  double perplexity_increase = 0.0;  ///< of that model's, as a fraction
};

/// Up to these a cache is fine: nine of ten tokens or more keep their likeliest successor, and
/// perplexity moves no more than between two formats that both work. Scales that work cost 0.005 to
/// 0.015; at 0.02 a tenth of the top tokens are others (docs/accuracy.md: E5M2 on SmolLM2-135M,
/// 0.0215, 89.9 %).
inline constexpr DamageLimits kFineLimits{.kl_mean = 0.02, .perplexity_increase = 0.01};
/// Over any of these a cache is not to be served: one top token in five is another (Gemma 3 270M,
/// 0.0971, 81.9 %), so that a text leaves that of the model within its first sentence, and tasks
/// with one right answer fail. 5 % of perplexity is what four bits cost (NVFP4, 6.9 %).
inline constexpr DamageLimits kServeLimits{.kl_mean = 0.1, .perplexity_increase = 0.05};
/// A cache that clips a larger share of K or V is not fine, whatever it costs on the text measured:
/// other text may need what is cut. One channel of a layer's thousand, always clipped.
inline constexpr double kFineClipped = 1e-3;
/// Below this number of tokens a standard error says little.
inline constexpr int64_t kFewTokens = 100;

/// The cost of a cache, measured on text, or predicted by a calibration from what it saw of
/// attention.
struct CacheDamage {
  double kl_mean = 0.0, kl_stderr = 0.0;
  std::optional<double> perplexity_increase = {};  ///< nullopt: not measured
  double increase_stderr = 0.0;
  double clipped = 0.0;    ///< share of the values of K or of V over the largest code
  int64_t num_tokens = 0;  ///< measured
  bool is_predicted = false;
};

enum class Damage : uint8_t { kFine, kNoticeable, kDoNotServe };
/// "fine", "noticeable", "do_not_serve": the values of "verdict" in JSON.
std::string_view name_of(Damage damage);
/// The same in words: "do not serve so".
std::string_view words_of(Damage damage);

struct DamageVerdict {
  Damage damage = Damage::kDoNotServe;
  /// The numbers' errors reach over a limit, or the tokens are few: text that was not measured may
  /// change the verdict. It does not make it less of one.
  bool needs_more_text = false;

  bool operator==(const DamageVerdict&) const = default;
};

/// The means decide what damage is; their standard errors only whether more text is needed. A
/// number that is not finite is damage.
DamageVerdict judge(const CacheDamage& damage);

/// "do not serve so: KL 0.3712, perplexity +34.1 % (limits: 0.1, +5 %)".
std::string verdict_text(const CacheDamage& damage);

/// Adds the verdict to an object that has the numbers "kl_mean", "kl_stderr" and, where it was
/// measured, "perplexity_increase": "verdict", of a measurement "needs_more_text" and
/// "perplexity_increase_stderr", and "clipped" where there is any.
void add_verdict(const CacheDamage& damage, Json& json);
/// The damage of such an object. Throws Error for values of other kinds; a number that is missing
/// is damage.
CacheDamage read_damage(const Json& json, int64_t num_tokens);

}  // namespace kvcal
