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
#include "eval/mixed_precision.h"
#include "report/eval_report.h"
#include "run/eval_variants.h"

namespace kvcal {

// The tasks of `eval`, one call each. All throw Error, and Interrupted where the user asks to stop.

/// Likelihood with only one layer's cache quantized.
struct LayerLikelihood {
  int64_t layer = 0;
  Likelihood result;
};

/// The scores of one variant.
struct VariantLikelihood {
  CacheLabel cache;
  Likelihood all;
  std::vector<PositionScores> positions;
  std::vector<LayerLikelihood> layers;  ///< empty unless requested
  std::vector<Likelihood> sequences;    ///< in the data set's order, without unscored ones
};

struct LikelihoodOptions {
  bool has_reference = false;  ///< also measures KL from a reference
  bool per_layer = false;
  Gates gates = {};
  /// Number of sequences to continue with each cache; needs a reference.
  int64_t num_texts = 0;
};

struct LikelihoodResult {
  size_t num_sequences = 0;
  std::string reference;  ///< name of the reference of KL; empty: none
  bool is_single = true;  ///< only one cache, because no variants were named
  bool has_layers = false;
  std::vector<VariantLikelihood> variants;
  std::vector<std::string> missed;                ///< a line for each missed gate of a variant
  std::vector<report::ComparedTexts> texts = {};  ///< empty unless requested
};

/// Computes perplexity of each variant, and KL from the reference. on_scores gets the result before
/// texts are written, so that an error there does not lose the numbers.
LikelihoodResult evaluate_likelihood(
    const EvalOptions& options, const LikelihoodOptions& asked, Diagnostics& diagnostics,
    const std::function<void(const LikelihoodResult&)>& on_scores = {});

/// Options of GSM8K besides EvalOptions. Data set, folder and memory of `questions` are set for
/// each variant; cache_bytes: nullopt: half of the free memory.
struct GsmTaskOptions {
  GsmOptions questions = {};
  GsmGates gates = {};
};

struct VariantAnswers {
  CacheLabel cache;
  GsmResult result;
};

struct GsmTaskResult {
  bool is_single = true;
  std::vector<VariantAnswers> variants;
  std::vector<std::string> missed;  ///< as in LikelihoodResult
};

GsmTaskResult evaluate_gsm8k(const EvalOptions& options, const GsmTaskOptions& asked,
                             Diagnostics& diagnostics);

struct SensitivityOptions {
  std::optional<double> kl_budget = {};  ///< the largest mean KL that may remain, in nats
  bool needs_recipe = false;             ///< throw Error where no recipe makes the cache
};

/// A cache with some layers in 16 bits.
struct MixedCacheRow {
  std::vector<int64_t> kept;  ///< layers in 16 bits, including those without scales
  Likelihood result;
  uint64_t bytes_per_token = 0;
  bool is_proposed = false;
};

/// Layers to keep in 16 bits so that the mean KL stays within a budget.
struct UnquantizedLayers {
  double kl_budget = 0.0;
  std::vector<int64_t> layers;
  size_t num_layers = 0;             ///< all attention layers
  std::string skip_layers_argument;  ///< vLLM's argument for the layers; empty: none needed
  std::string recipe;                ///< empty: no recipe makes this cache
};

struct SensitivityResult {
  size_t num_sequences = 0;
  std::string reference;
  CacheLabel cache;
  std::vector<LayerSensitivity> ranking;  ///< the most sensitive layer first
  std::vector<MixedCacheRow> rows;
  uint64_t bytes_per_token_16_bit = 0;
  std::optional<UnquantizedLayers> proposal;  ///< nullopt without a budget
};

/// Ranks layers by the KL of their cache alone, and proposes which to keep in 16 bits.
SensitivityResult evaluate_sensitivity(const EvalOptions& options, const SensitivityOptions& asked,
                                       Diagnostics& diagnostics);

/// Output of `kvcal eval --json`. version: of the program. A single variant's numbers are
/// beside the run's own.
Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const LikelihoodResult& result);
Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const GsmTaskOptions& asked, const GsmTaskResult& result);
Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const SensitivityResult& result);

/// The same as the values of a page, with the texts.
report::EvalReport evaluation_report(const EvalOptions& options, const std::string& version,
                                     const LikelihoodResult& result);
report::EvalReport evaluation_report(const EvalOptions& options, const std::string& version,
                                     const GsmTaskResult& result);
report::EvalReport evaluation_report(const EvalOptions& options, const std::string& version,
                                     const SensitivityResult& result);

// The same in words and tables, as lines for a terminal. A table of more than most_rows layers has
// those that lose most instead.

std::string evaluation_text(const LikelihoodResult& result, size_t most_rows);
std::string evaluation_text(const GsmTaskResult& result);
std::string evaluation_text(const SensitivityResult& result, size_t most_rows);

}  // namespace kvcal
