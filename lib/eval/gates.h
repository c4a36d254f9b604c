#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/text.h"
#include "eval/gsm8k.h"
#include "eval/likelihood.h"

namespace kvcal {

/// Limits that a checkpoint's predictions must keep, for pipelines that publish it.
struct Gates {
  std::optional<double> max_kl = {};                   ///< of the mean, in nats
  std::optional<double> max_perplexity_increase = {};  ///< of the reference's, as a fraction
  std::optional<double> min_top1 = {};                 ///< same top token, as a fraction

  bool has_any() const { return max_kl || max_perplexity_increase || min_top1; }
};

/// One limit, and what was found.
struct Gate {
  std::string option;  ///< "--max-kl"
  double value = 0.0, limit = 0.0;
  std::optional<double> standard_error = {};  ///< of the value, where it is known
  bool passed = true;
};

/// A line with the option's name, what was found and by how much it is off; of one that was missed.
std::string missed_text(const Gate& gate);
/// {"gate", "limit", "value", "standard_error" (or null), "passed"} of each.
Json to_json(const std::vector<Gate>& gates);

/// The gates that have a limit. result is of a run with a reference.
std::vector<Gate> judged_gates(const Likelihood& result, const Gates& gates);

/// Least parts of right answers, as fractions.
struct GsmGates {
  std::optional<double> min_strict, min_flexible;

  bool has_any() const { return min_strict || min_flexible; }
};
std::vector<Gate> judged_gates(const GsmResult& result, const GsmGates& gates);

}  // namespace kvcal
