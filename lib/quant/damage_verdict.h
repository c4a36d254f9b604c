#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"

namespace kvcal {

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
