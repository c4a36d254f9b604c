#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "eval/mixed_precision.h"

namespace kvcal {

/// What a search for layers in 16 bits found.
struct KlBudgetOutcome {
  double kl_budget = 0;  ///< nats a token
  size_t num_sequences = 0;
  bool is_held_out = false;                         ///< no sequence was a sample of the calibration
  std::optional<std::vector<int64_t>> layers = {};  ///< in 16 bits, ascending; nullopt: none found
  Likelihood result = {};                           ///< with these
  /// All that was measured with the scales of a calibration that has every layer in FP8, by the
  /// number of layers in 16 bits.
  std::vector<MixedCache> measured = {};
};

/// "0.0066 ± 0.0004 with layer 0 in 16 bits, 0.229 ± 0.032 with none; the budget is 0.02 (..)"
std::string budget_text(const KlBudgetOutcome& outcome);
/// The value of "kl_budget" in a manifest (docs/formats.md).
Json to_json(const KlBudgetOutcome& outcome);

}  // namespace kvcal
