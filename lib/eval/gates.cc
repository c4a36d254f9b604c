#include "eval/gates.h"

#include <cmath>

namespace kvcal {
namespace {

std::string percent_of(double fraction) {
  return short_float(100.0 * fraction) + " %";
}

/// A gate of an option. shown: makes text of its numbers.
Gate gate_of(const char* option, double value, double limit, std::optional<double> error) {
  const bool is_least = std::string_view(option).starts_with("--min");
  // A value that is no number keeps no limit.
  const bool passed = is_least ? value >= limit : value <= limit;
  return {
      .option = option, .value = value, .limit = limit, .standard_error = error, .passed = passed};
}

/// What a gate is about, with its verb.
std::string subject_of(const Gate& gate) {
  if (gate.option == "--max-kl") return "the mean KL is ";
  if (gate.option == "--max-perplexity-increase") return "the increase is ";
  if (gate.option == "--min-top1") return "the part of same top tokens is ";
  return std::string("exact_match of ") +
         (gate.option == "--min-exact-match" ? "strict-match is " : "flexible-extract is ");
}

}  // namespace

std::string missed_text(const Gate& gate) {
  const auto shown = gate.option == "--max-kl" ? short_float : percent_of;
  return gate.option + ": " + subject_of(gate) + shown(gate.value) + ", the limit is " +
         shown(gate.limit) + ": missed by " + shown(std::abs(gate.value - gate.limit));
}

std::vector<Gate> judged_gates(const Likelihood& result, const Gates& gates) {
  std::vector<Gate> judged;
  const auto add = [&](const char* option, const std::optional<double>& limit,
                       const std::optional<double>& value, std::optional<double> error) {
    if (limit) judged.push_back(gate_of(option, value.value(), *limit, error));
  };
  std::optional<double> top1_error;
  if (const auto& part = result.top1_agreement; part && result.num_tokens > 0)
    top1_error = std::sqrt(*part * (1.0 - *part) / static_cast<double>(result.num_tokens));
  add("--max-kl", gates.max_kl, result.kl_mean, result.kl_stderr);
  add("--max-perplexity-increase", gates.max_perplexity_increase, result.perplexity_increase,
      result.increase_stderr);
  add("--min-top1", gates.min_top1, result.top1_agreement, top1_error);
  return judged;
}

std::vector<Gate> judged_gates(const GsmResult& result, const GsmGates& gates) {
  std::vector<Gate> judged;
  const auto add = [&](const char* option, const std::optional<double>& limit,
                       const GsmScore& score) {
    if (limit) judged.push_back(gate_of(option, score.exact_match, *limit, score.stderr_of_mean));
  };
  add("--min-exact-match", gates.min_strict, result.strict);
  add("--min-exact-match-flexible", gates.min_flexible, result.flexible);
  return judged;
}

Json to_json(const std::vector<Gate>& gates) {
  Json list = Json::array();
  for (const Gate& gate : gates)
    list.push_back({{"gate", gate.option},
                    {"limit", gate.limit},
                    {"value", gate.value},
                    {"standard_error", or_null(gate.standard_error)},
                    {"passed", gate.passed}});
  return list;
}

}  // namespace kvcal
