#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/metrics.h"
#include "report/plot.h"

namespace kvcal::report {

/// Tokens by their position in the sequence, first to last.
struct PositionAccuracy {
  int64_t first = 0, last = 0, num_tokens = 0;
  double kl_mean, nll, reference_nll;
  double kl_stderr = 0.0, nll_stderr = 0.0, reference_nll_stderr = 0.0;  ///< 0: not known
};

/// The same where only this layer's cache is quantized.
struct LayerAccuracy {
  int64_t layer = 0;
  Metrics metrics;
};

struct SequenceAccuracy {
  int64_t num_tokens = 0;
  double nll, kl_mean;
};

/// One cache dtype with its scales.
struct EvalVariant {
  std::string name, kv_cache_dtype, scales;
  int64_t num_tokens = 0;
  Metrics metrics;
  std::string verdict = {};  ///< what it costs, a sentence; empty: not measured
  std::vector<PositionAccuracy> positions = {};
  std::vector<LayerAccuracy> layers = {};
  std::vector<SequenceAccuracy> sequences = {};
};

/// The text that a variant wrote; kl: of each token against the reference's distribution, may be
/// empty.
struct GeneratedText {
  std::string name, text;
  std::vector<std::string> tokens;
  std::optional<int64_t> first_divergence = {};  ///< index of a token; nullopt: the texts are equal
  std::vector<double> kl = {};
};
struct ComparedTexts {
  std::string prompt;
  GeneratedText reference;
  std::vector<GeneratedText> variants = {};
};

/// A choice of layers that keep 16 bits, and what it costs and gives.
struct MixedPrecision {
  std::vector<int64_t> kept_layers;
  double kl_mean, perplexity, bytes_per_token;
  bool is_proposed = false;
  double kl_stderr = 0.0;  ///< 0: not known
};
struct Sensitivity {
  double kl_budget, bytes_per_token_16_bit;
  std::string kv_cache_dtype, skip_layers_argument, recipe;
  std::vector<MixedPrecision> rows = {};
  struct Rank {
    int64_t layer = 0;
    double kl_mean, kl_stderr = 0.0;
  };
  std::vector<Rank> ranking = {};
};

/// A question of GSM8K and what became of it.
struct AnsweredQuestion {
  int64_t index = 0;
  std::string variant, question, text, target, strict, flexible;
  bool is_strict_right = false, is_flexible_right = false;
};

/// Everything the page of an evaluation shows. All strings may come from files of strangers.
struct EvalReport {
  std::string task, model = {}, dataset = {}, reference = {}, version = {};
  std::optional<int64_t> max_seq_length = {}, stride = {}, num_sequences = {}, num_questions = {};
  std::optional<int64_t> num_fewshot = {};
  std::vector<EvalVariant> variants = {};
  std::vector<ComparedTexts> texts = {};
  std::optional<Sensitivity> sensitivity = {};
  std::vector<AnsweredQuestion> questions = {};
};

/// One HTML file, complete in itself. Same input, same bytes.
std::string eval_page(const EvalReport& report);

/// The plots that its values allow, of: "kl-by-layer", "kl-by-position", "nll-by-position",
/// "kl-by-sequence", "sensitivity", "ranking".
std::vector<Plot> eval_plots(const EvalReport& report);

}  // namespace kvcal::report
