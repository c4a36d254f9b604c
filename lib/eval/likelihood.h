#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/decoder.h"

namespace kvcal {

/// A model and the cache its tokens are read through. Borrows both.
struct ScoredModel {
  Decoder& decoder;
  KvDType cache_dtype = KvDType::kFloat32;
  const std::vector<LayerKvScales>& scales;  ///< as Decoder::make_cache wants them
};

/// One entry for each token that was predicted from those before it.
struct TokenScores {
  std::vector<double> nll;            ///< -ln of what the model gave the token that came
  std::vector<double> reference_nll;  ///< of the reference; empty without one
  std::vector<double> kl;             ///< KL(reference || model) in nats; empty without a reference
  int64_t same_top = 0;               ///< how often both find the same token most likely
};

/// Feeds ids (teacher forcing) and adds the scores of ids[1], ids[2], .. Both models see the same
/// ids from the start of a sequence; their vocabularies must be of one size. Throws Error as
/// Decoder::step_all.
void score_tokens(const ScoredModel& model, const ScoredModel* reference,
                  std::span<const TokenId> ids, TokenScores& scores);

/// The scores of several sequences as those of one.
TokenScores joined(std::span<const TokenScores> sequences);

/// Of all scored tokens together. Throws Error for none.
struct Likelihood {
  int64_t num_tokens = 0;
  double nll = 0.0, perplexity = 0.0;  ///< mean, and e to it
  std::optional<double> kl_mean, kl_p99, kl_max, top1_agreement;
  std::optional<double> reference_perplexity;
  std::optional<double> perplexity_increase;  ///< perplexity / reference_perplexity - 1
};
Likelihood summarize(const TokenScores& scores);

}  // namespace kvcal
