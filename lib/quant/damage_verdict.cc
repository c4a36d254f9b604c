#include "quant/damage_verdict.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/text.h"

namespace kvcal {
namespace {

constexpr double kErrors = 2.0;  ///< standard errors that a mean may be off by

/// NaN is within no limit.
bool is_within(double kl, double increase, const DamageLimits& limits) {
  return kl <= limits.kl_mean && increase <= limits.perplexity_increase;
}

/// The perplexity that is judged. Of few tokens it is a matter of luck, where KL is not: the errors
/// of a cache move the probability of the next token up and down, and that of all tokens apart.
std::optional<double> judged_increase(const CacheDamage& damage) {
  if (damage.num_tokens < kFewTokens) return std::nullopt;
  return damage.perplexity_increase;
}

/// The verdict if all means were off by so many standard errors.
Damage damage_at(const CacheDamage& damage, double errors) {
  const double kl = damage.kl_mean + errors * damage.kl_stderr;
  const std::optional<double> judged = judged_increase(damage);
  const double increase = judged ? *judged + errors * damage.increase_stderr : 0.0;
  if (!is_within(kl, increase, kServeLimits)) return Damage::kDoNotServe;
  if (!is_within(kl, increase, kFineLimits) || !(damage.clipped <= kFineClipped))
    return Damage::kNoticeable;
  return Damage::kFine;
}

std::string kl_words(double kl) {
  return fixed("%.4f", kl);
}

std::string increase_words(double increase) {
  return fixed("%+.2f %%", 100 * increase);
}

std::string limits_words(const CacheDamage& damage, const DamageLimits& limits) {
  const std::string kl = short_float(limits.kl_mean);
  if (!judged_increase(damage)) return kl;
  return kl + ", +" + short_float(100 * limits.perplexity_increase) + " %";
}

}  // namespace

std::string_view name_of(Damage damage) {
  constexpr std::array<std::string_view, 3> kNames{"fine", "noticeable", "do_not_serve"};
  return kNames.at(static_cast<size_t>(damage));
}

std::string_view words_of(Damage damage) {
  return damage == Damage::kDoNotServe ? "do not serve so" : name_of(damage);
}

DamageVerdict judge(const CacheDamage& damage) {
  const Damage found = damage_at(damage, 0);
  if (damage.is_predicted) return {.damage = found, .needs_more_text = false};
  return {.damage = found,
          .needs_more_text = damage.num_tokens < kFewTokens ||
                             damage_at(damage, -kErrors) != found ||
                             damage_at(damage, kErrors) != found};
}

std::string verdict_text(const CacheDamage& damage) {
  const DamageVerdict verdict = judge(damage);
  const bool is_bad = verdict.damage == Damage::kDoNotServe;
  std::string text = std::string(words_of(verdict.damage)) + ": " +
                     (damage.is_predicted ? "predicted KL " : "KL ") + kl_words(damage.kl_mean);
  if (const auto increase = judged_increase(damage))
    text += ", perplexity " + increase_words(*increase);
  text += std::string(is_bad ? " (limits: " : " (fine up to ") +
          limits_words(damage, is_bad ? kServeLimits : kFineLimits) + ")";
  if (damage.clipped > kFineClipped) text += ", clips " + percent(damage.clipped);
  if (damage.is_predicted && verdict.damage != Damage::kFine) text += "; --measure measures it";
  if (verdict.needs_more_text) text += "; measure more text to be sure";
  return text;
}

void add_verdict(const CacheDamage& damage, Json& json) {
  const DamageVerdict verdict = judge(damage);
  json["verdict"] = name_of(verdict.damage);
  if (!damage.is_predicted) json["needs_more_text"] = verdict.needs_more_text;
  if (damage.perplexity_increase) json["perplexity_increase_stderr"] = damage.increase_stderr;
  if (damage.clipped > 0) json["clipped"] = damage.clipped;
}

CacheDamage read_damage(const Json& json, int64_t num_tokens) {
  if (!json.is_object()) fail("found ", kind_of(json), ", expected an object");
  return {.kl_mean = optional_number(json, "kl_mean").value_or(std::nan("")),
          .kl_stderr = optional_number(json, "kl_stderr").value_or(0.0),
          .perplexity_increase = optional_number(json, "perplexity_increase"),
          .increase_stderr = optional_number(json, "perplexity_increase_stderr").value_or(0.0),
          .clipped = optional_number(json, "clipped").value_or(0.0),
          .num_tokens = num_tokens};
}

}  // namespace kvcal
