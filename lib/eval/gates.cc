#include "eval/gates.h"

namespace kvcal {
namespace {

std::string percent_of(double fraction) {
  return short_float(100.0 * fraction) + " %";
}

std::string line(const std::string& gate, const std::string& what, const std::string& found,
                 const std::string& limit, const std::string& off) {
  return gate + ": " + what + " is " + found + ", the limit is " + limit + ": missed by " + off;
}

}  // namespace

std::vector<std::string> missed_gates(const Likelihood& result, const Gates& gates) {
  std::vector<std::string> missed;
  // A value that is no number keeps no limit.
  const auto is_over = [](double value, double limit) { return !(value <= limit); };
  if (gates.max_kl && is_over(*result.kl_mean, *gates.max_kl))
    missed.push_back(line("--max-kl", "the mean KL", short_float(*result.kl_mean),
                          short_float(*gates.max_kl),
                          short_float(*result.kl_mean - *gates.max_kl)));
  if (gates.max_perplexity_increase &&
      is_over(*result.perplexity_increase, *gates.max_perplexity_increase)) {
    const double increase = *result.perplexity_increase, limit = *gates.max_perplexity_increase;
    missed.push_back(line("--max-perplexity-increase", "the increase", percent_of(increase),
                          percent_of(limit), percent_of(increase - limit)));
  }
  if (gates.min_top1 && !(*result.top1_agreement >= *gates.min_top1)) {
    const double found = *result.top1_agreement, limit = *gates.min_top1;
    missed.push_back(line("--min-top1", "the part of same top tokens", percent_of(found),
                          percent_of(limit), percent_of(limit - found)));
  }
  return missed;
}

std::vector<std::string> missed_gates(const GsmResult& result, const GsmGates& gates) {
  std::vector<std::string> missed;
  const auto check = [&](const char* gate, const char* filter, const GsmScore& score,
                         const std::optional<double>& limit) {
    if (!limit || score.exact_match >= *limit) return;
    missed.push_back(line(gate, std::string("exact_match of ") + filter,
                          percent_of(score.exact_match), percent_of(*limit),
                          percent_of(*limit - score.exact_match)));
  };
  check("--min-exact-match", "strict-match", result.strict, gates.min_strict);
  check("--min-exact-match-flexible", "flexible-extract", result.flexible, gates.min_flexible);
  return missed;
}

}  // namespace kvcal
