#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/likelihood.h"

namespace kvcal {

/// Ids that a model reads, and those behind them that are scored. Neither is empty.
struct ContinuationIds {
  std::vector<TokenId> context, continuation;
};

struct ContinuationScore {
  double log_probability = 0.0;  ///< ln of the continuation's probability behind the context
  bool is_greedy = false;        ///< each of its tokens is the most likely one
};

/// Scores continuations, many at a time. What they share is run once, with the same bytes: a
/// context with several continuations, the examples before all contexts of a task.
/// Source: lm_eval 0.4.13, models/huggingface.py `_loglikelihood_tokens`.
class ContinuationScorer {
 public:
  /// num_threads: of the statistics of logits; 0: one a CPU. Borrows what model borrows.
  ContinuationScorer(const ScoredModel& model, int num_threads);

  /// One score each, in their order. slots: how many are run at a time, at most; changes no score.
  /// tokens_run: gets the number of tokens that went through the layers; null: not wanted. Throws
  /// Error for an empty context or continuation, and as Decoder::step.
  std::vector<ContinuationScore> score(std::span<const ContinuationIds> texts, int64_t slots,
                                       int64_t* tokens_run = nullptr);

  /// Tokens that a slot must hold for any of the texts.
  static int64_t longest_text(std::span<const ContinuationIds> texts);

 private:
  class Pass;
  ScoredModel model_;
  ThreadPool threads_;
};

}  // namespace kvcal
