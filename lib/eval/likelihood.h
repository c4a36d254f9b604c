// One pass scores all caches. Scorer runs the reference once for every variant. Logits are made
// for a few rows at a time from the kept residual stream, so a vocabulary of 260,000 costs no
// memory. For a layer's own KL, step_branches takes the layers before it from one run.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "forward/decoder.h"
#include "quant/damage_verdict.h"

namespace kvcal {

/// Name of a variant, type and scales of its cache.
struct CacheLabel {
  std::string name = {};
  CacheType type = KvDType::kFloat32;
  /// "none", "unit", "dynamic" (made for each token), "checkpoint", or the file or folder.
  std::string scales_source = {};
  uint64_t bytes_per_token = 0;  ///< of K and V in all layers, as engines store them
  bool fp8_attention = false;
};

/// A model and the cache its tokens are read through. Borrows both.
struct ScoredModel {
  Decoder& decoder;
  CacheType cache = KvDType::kFloat32;
  const std::vector<LayerKvScales>& scales;  ///< as Decoder::make_cache wants them
};

/// One model's scores of a sequence's scored tokens, in their order.
struct TokenScores {
  std::vector<double> nll;  ///< -ln of the probability that the model gave the next token
  // Empty without a reference:
  std::vector<double> kl;         ///< KL(reference || model) in nats
  std::vector<uint8_t> same_top;  ///< 1 where both find the same token most likely
};

/// A sequence's scores: of each model, and of what they are measured from.
struct SequenceScores {
  std::vector<int64_t> positions;     ///< of each scored token in its sequence, from 1 on
  std::vector<double> reference_nll;  ///< empty without a reference
  std::vector<TokenScores> models;
};

/// Teacher forcing of several models in one pass over the text: the reference runs once for all.
class Scorer {
 public:
  /// reference: what KL is measured from, or null. All vocabularies must be of one size, else
  /// Error. num_threads: of the statistics of logits; 0: one a CPU.
  Scorer(std::vector<ScoredModel> models, std::optional<ScoredModel> reference, int num_threads);
  ~Scorer();

  /// Feeds ids from the start of a sequence, and scores ids[first_scored] and those behind; those
  /// before are context only. first_scored: 1 or more. Throws Error as Decoder::step.
  SequenceScores score(std::span<const TokenId> ids, size_t first_scored = 1);

  /// As score of one model of which only one layer's cache is quantized, for each of layers, which
  /// ascend: models[i] is of layers[i]. Layers before that one are run once for all.
  SequenceScores score_layers(std::span<const TokenId> ids, size_t first_scored, size_t model,
                              std::span<const int64_t> layers);
  /// Needs a quantized cache, and a reference that is the same model with its unquantized cache.
  bool can_score_layers(size_t model) const;

 private:
  struct Scored;
  struct Stream;
  class Comparison;
  SequenceScores empty_scores(const Scored& scored, size_t num_models) const;
  static KvCache cache_of(const ScoredModel& model, int64_t tokens);
  /// Feeds a sequence in steps and scores models from first on. streams_of(step): what they make of
  /// it, then what the reference does.
  template <class StreamsOf>
  void score_steps(const Scored& scored, size_t first, SequenceScores& scores,
                   const StreamsOf& streams_of);
  /// Some of score_layers' layers, whose results are models from first on.
  void score_branches(const Scored& scored, const ScoredModel& model,
                      std::span<const int64_t> layers, size_t first, SequenceScores& scores);

  std::vector<ScoredModel> models_;
  std::optional<ScoredModel> reference_;
  ThreadPool threads_;
};

/// Statistics of all scored tokens.
struct Likelihood {
  int64_t num_tokens = 0;
  double nll = 0.0, perplexity = 0.0;  ///< mean, and e to it
  std::optional<double> kl_mean, kl_p99, kl_max, top1_agreement;
  /// Standard error of kl_mean, tokens taken as independent: what another run whose arithmetic
  /// differs in the last bits may be off by, since the errors of an FP8 cache do not repeat.
  std::optional<double> kl_stderr;
  std::optional<double> reference_perplexity;
  std::optional<double> perplexity_increase;  ///< perplexity / reference_perplexity - 1
  std::optional<double> increase_stderr;      ///< its standard error, tokens taken as independent
};

/// The statistics of one of the models. Throws Error where no token is scored.
Likelihood summarize(std::span<const SequenceScores> sequences, size_t model);

/// The cost of the cache that result, of a run with a reference, is of. clipped: as in CacheDamage.
CacheDamage damage_of(const Likelihood& result, double clipped = 0.0);

/// Mean of a difference over all scored tokens, and its standard error, tokens taken as
/// independent.
struct PairedDifference {
  double mean = 0.0, standard_error = 0.0;
};
/// KL of one model less that of another, of the same tokens; both need a reference.
PairedDifference kl_difference(std::span<const SequenceScores> sequences, size_t model,
                               size_t less);

/// Means over the scored tokens whose position in their sequence is first to last.
struct PositionScores {
  int64_t first = 0, last = 0, num_tokens = 0;
  double nll = 0.0;
  /// NaN without a reference.
  double kl_mean = std::numeric_limits<double>::quiet_NaN(), reference_nll = kl_mean;
  /// Standard errors, as kl_stderr of Likelihood.
  double nll_stderr = 0.0, kl_stderr = 0.0, reference_nll_stderr = 0.0;
};
/// In octaves of the position, 1, 2 to 3, 4 to 7, ..., without empty ones.
std::vector<PositionScores> by_position(std::span<const SequenceScores> sequences, size_t model);

}  // namespace kvcal
