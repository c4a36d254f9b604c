#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/text.h"
#include "eval/gsm8k.h"
#include "eval/likelihood.h"

namespace kvcal {

/// Limits that a checkpoint's predictions must keep, for pipelines that publish it.
struct Gates {
  std::optional<double> max_kl;                   ///< of the mean, in nats
  std::optional<double> max_perplexity_increase;  ///< of the reference's, as a fraction
  std::optional<double> min_top1;                 ///< same top token, as a fraction

  bool has_any() const { return max_kl || max_perplexity_increase || min_top1; }
};

/// A line for each gate that was missed, with its option's name, what was found and by how much it
/// is off; empty: all are kept. result is of a run with a reference.
std::vector<std::string> missed_gates(const Likelihood& result, const Gates& gates);

/// Least parts of right answers, as fractions.
struct GsmGates {
  std::optional<double> min_strict, min_flexible;

  bool has_any() const { return min_strict || min_flexible; }
};
std::vector<std::string> missed_gates(const GsmResult& result, const GsmGates& gates);

}  // namespace kvcal
