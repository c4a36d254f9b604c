#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "eval/gates.h"
#include "eval/mixed_precision.h"
#include "run/eval_variants.h"

namespace kvcal {

// The tasks of `eval`, a call each. All throw Error, and Interrupted where the user asks to stop.

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
  std::vector<LayerLikelihood> layers;  ///< empty unless asked for
  std::vector<Likelihood> sequences;    ///< in the data set's order; those without scores left out
};

struct LikelihoodOptions {
  bool has_reference = false;  ///< whether KL from a reference is measured, too
  bool per_layer = false;
  Gates gates = {};
  /// Sequences whose continuation with each cache is written, too; needs a reference.
  int64_t num_texts = 0;
};

struct LikelihoodResult {
  size_t num_sequences = 0;
  std::string reference;  ///< the name of what KL is measured from; empty: nothing
  bool is_single = true;  ///< one cache alone, since no variants were named
  bool has_layers = false;
  std::vector<VariantLikelihood> variants;
  std::vector<std::string> missed;  ///< a line for each gate of a variant that is missed
  Json texts = nullptr;             ///< see continuations_json; null: none were asked for
};

/// Perplexity of each variant, and KL from the reference. on_scores: gets the result before texts
/// are written, so that no error there takes the numbers away.
LikelihoodResult evaluate_likelihood(
    const EvalOptions& options, const LikelihoodOptions& asked, Diagnostics& diagnostics,
    const std::function<void(const LikelihoodResult&)>& on_scores = {});

/// GSM8K: what is asked beside EvalOptions. data set, folder and memory of `questions` are filled
/// in for each variant; cache_bytes: absent: half of what is free.
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
  std::optional<double> kl_budget = {};  ///< the mean KL that may be left, in nats
  bool needs_recipe = false;             ///< throw Error where no recipe makes the cache
};

/// A cache of which some layers keep 16 bits.
struct MixedCacheRow {
  std::vector<int64_t> kept;  ///< layers in 16 bits, those without scales among them
  Likelihood result;
  uint64_t bytes_per_token = 0;
  bool is_proposed = false;
};

/// The layers to keep in 16 bits so that the mean KL is within a budget.
struct KeptLayers {
  double kl_budget = 0.0;
  std::vector<int64_t> layers;
  size_t num_layers = 0;             ///< all that attend
  std::string skip_layers_argument;  ///< vLLM's, of the layers; empty: it needs none
  std::string recipe;                ///< empty: no recipe makes this cache
};

struct SensitivityResult {
  size_t num_sequences = 0;
  std::string reference;
  CacheLabel cache;
  std::vector<LayerSensitivity> ranking;  ///< the dearest layer first
  std::vector<MixedCacheRow> rows;
  uint64_t bytes_per_token_16_bit = 0;
  std::optional<KeptLayers> proposal;  ///< none without a budget
};

/// Layers by the KL of their cache alone, and which of them to keep in 16 bits.
SensitivityResult evaluate_sensitivity(const EvalOptions& options, const SensitivityOptions& asked,
                                       Diagnostics& diagnostics);

/// What `kvcal eval --json` prints. version: of the program; a single variant's numbers stand
/// beside the run's own.
Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const LikelihoodResult& result);
Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const GsmTaskOptions& asked, const GsmTaskResult& result);
Json evaluation_json(const EvalOptions& options, const std::string& version,
                     const SensitivityResult& result);
/// The same as reports read it, with every variant in a list, and texts.
Json report_json(const EvalOptions& options, const std::string& version,
                 const LikelihoodResult& result);

}  // namespace kvcal
