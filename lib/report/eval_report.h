#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/gsm8k.h"
#include "eval/mixed_precision.h"
#include "report/metrics.h"
#include "report/plot.h"

namespace kvcal::report {

/// Likelihood with only one layer's cache quantized.
struct LayerLikelihood {
  int64_t layer = 0;
  Likelihood result;
};

/// One cache, and what was measured of it: the likelihood of a text, or answers to questions.
struct EvalVariant {
  CacheLabel cache;
  Likelihood all = {};
  std::string verdict = {};  ///< what it costs, a sentence; empty: not measured
  std::vector<PositionScores> positions = {};
  std::vector<LayerLikelihood> layers = {};  ///< empty unless requested
  std::vector<Likelihood> sequences = {};    ///< in the data set's order, without unscored ones
  std::optional<GsmResult> answers = {};     ///< in place of all others
};

/// Numbers by their keys in JSON, in its order; nullopt: not measured.
using Numbers = std::vector<std::pair<const char*, std::optional<double>>>;
Numbers numbers_of(const Likelihood& result);

/// The text that a variant wrote; kl: of each token against the reference's distribution, may be
/// empty.
struct GeneratedText {
  std::string name, text;
  std::vector<std::string> tokens = {};
  std::optional<int64_t> first_divergence = {};  ///< index of a token; nullopt: the texts are equal
  std::vector<double> kl = {};
};
struct ComparedTexts {
  std::string prompt;
  GeneratedText reference = {};
  std::vector<GeneratedText> variants = {};
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
  std::vector<int64_t> layers = {};
  size_t num_layers = 0;                  ///< all attention layers
  std::string skip_layers_argument = {};  ///< vLLM's argument for the layers; empty: none needed
  std::string recipe = {};                ///< empty: no recipe makes this cache
};

struct Sensitivity {
  CacheLabel cache;
  std::vector<LayerSensitivity> ranking = {};  ///< the most sensitive layer first
  std::vector<MixedCacheRow> rows = {};
  uint64_t bytes_per_token_16_bit = 0;             ///< 0: not known
  std::optional<UnquantizedLayers> proposal = {};  ///< nullopt without a budget
};

/// Everything the page of an evaluation shows. All strings may come from files of strangers.
struct EvalReport {
  std::string task, model = {}, dataset = {}, version = {};
  std::string reference = {};  ///< name of the reference of KL; empty: none
  std::optional<int64_t> max_seq_length = {}, stride = {}, num_sequences = {};
  bool is_single = true;  ///< only one cache, because no variants were named
  std::vector<EvalVariant> variants = {};
  std::vector<ComparedTexts> texts = {};  ///< empty unless requested
  std::optional<Sensitivity> sensitivity = {};
};

/// One HTML file, complete in itself. Same input, same bytes.
std::string eval_page(const EvalReport& report);

/// The plots that its values allow, of: "kl-by-layer", "kl-by-position", "nll-by-position",
/// "kl-by-sequence", "sensitivity", "ranking".
std::vector<Plot> eval_plots(const EvalReport& report);

}  // namespace kvcal::report
