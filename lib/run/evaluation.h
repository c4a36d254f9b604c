// A task of `eval` is a call that returns a value. It opens the device, loads the models and
// returns numbers, from which JSON, tables and pages are made. The caller gets the numbers
// before texts are written, so an error of a drawing cannot lose them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "eval/gates.h"
#include "report/eval_report.h"
#include "run/eval_variants.h"

namespace kvcal {

// The tasks of `eval`: of each the call, and what it found as JSON and as lines for a terminal. All
// calls throw Error, and Interrupted where the user asks to stop. A table of more than most_rows
// layers has those that lose most instead.

/// What a task found, as the values of its page.
struct EvalResult {
  report::EvalReport report;
  std::vector<std::string> missed = {};  ///< a line for each missed gate of a variant
};

struct LikelihoodOptions {
  bool has_reference = false;  ///< also measures KL from a reference
  bool per_layer = false;
  Gates gates = {};
  /// Number of sequences to continue with each cache; needs a reference.
  int64_t num_texts = 0;
};

/// Computes perplexity of each variant, and KL from the reference. on_scores gets the result before
/// texts are written, so that an error there does not lose the numbers.
EvalResult evaluate_likelihood(const EvalOptions& options, const LikelihoodOptions& asked,
                               Diagnostics& diagnostics,
                               const std::function<void(const EvalResult&)>& on_scores = {});
/// A single variant's numbers are beside the run's own.
Json likelihood_json(const EvalOptions& options, const LikelihoodOptions& asked,
                     const report::EvalReport& found);
/// is_whole: of several variants also the cache, the scales and the tail of KL.
std::string likelihood_text(const report::EvalReport& found, size_t most_rows, bool is_whole);

/// Options of GSM8K besides EvalOptions. Data set, folder and memory of `questions` are set for
/// each variant; cache_bytes: nullopt: half of the free memory.
struct GsmTaskOptions {
  GsmOptions questions = {};
  GsmGates gates = {};
};

EvalResult evaluate_gsm8k(const EvalOptions& options, const GsmTaskOptions& asked,
                          Diagnostics& diagnostics);
Json gsm8k_json(const EvalOptions& options, const GsmTaskOptions& asked,
                const report::EvalReport& found);
std::string gsm8k_text(const report::EvalReport& found);

struct SensitivityOptions {
  std::optional<double> kl_budget = {};  ///< the largest mean KL that may remain, in nats
  bool needs_recipe = false;             ///< throw Error where no recipe makes the cache
};

/// Ranks layers by the KL of their cache alone, and proposes which to keep in 16 bits.
EvalResult evaluate_sensitivity(const EvalOptions& options, const SensitivityOptions& asked,
                                Diagnostics& diagnostics);
Json sensitivity_json(const EvalOptions& options, const report::EvalReport& found);
std::string sensitivity_text(const report::Sensitivity& found, size_t most_rows);

}  // namespace kvcal
