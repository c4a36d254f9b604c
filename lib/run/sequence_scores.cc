#include "run/sequence_scores.h"

#include <algorithm>

#include "core/error.h"

namespace kvcal {

namespace {

std::vector<ScoredSequence> sequences_of(const EvalOptions& options, const LoadedModel& model,
                                         Diagnostics& diagnostics) {
  return read_sequences(options.dataset, model.model_dir.path(), model.config.vocab_size,
                        options.sequences, diagnostics);
}

bool has_scores(const ScoredSequence& sequence) {
  return std::ssize(sequence.ids) > 1;
}

void check_sequences(const EvalOptions& options, const LoadedModel& model,
                     const std::vector<ScoredSequence>& sequences, Diagnostics& diagnostics) {
  if (std::ranges::none_of(sequences, has_scores))
    fail(options.dataset, ": no token to score: a sequence needs two or more");
  const int64_t most = model.config.max_position_embeddings;
  const auto longer = std::ranges::count_if(
      sequences, [&](const auto& one) { return std::ssize(one.ids) - 1 > most; });
  if (longer > 0)
    diagnostics.warn(std::to_string(longer) + " sequences are longer than the " +
                     std::to_string(most) +
                     " positions the model was made for; cut them with "
                     "--max-seq-length");
}

}  // namespace

std::vector<ScoredSequence> read_sequences(const EvalOptions& options, const LoadedModel& model,
                                           Diagnostics& diagnostics) {
  std::vector<ScoredSequence> sequences = sequences_of(options, model, diagnostics);
  check_sequences(options, model, sequences, diagnostics);
  return sequences;
}

std::vector<ScoredSequence> read_left_sequences(EvalOptions& options, const LoadedModel& model,
                                                Diagnostics& diagnostics) {
  std::vector<ScoredSequence> sequences = sequences_of(options, model, diagnostics);
  if (std::ranges::none_of(sequences, has_scores)) {
    options.sequences.num_skipped = 0;
    return read_sequences(options, model, diagnostics);
  }
  check_sequences(options, model, sequences, diagnostics);
  return sequences;
}

namespace {

/// score(sequence) for each sequence, with progress in tokens.
template <class Score>
std::vector<SequenceScores> score_each(const std::vector<ScoredSequence>& sequences,
                                       const char* stage, Diagnostics& diagnostics,
                                       const Score& score) {
  int64_t done = 0, total = 0;
  for (const ScoredSequence& sequence : sequences) total += std::ssize(sequence.ids);
  std::vector<SequenceScores> scores;
  for (const ScoredSequence& sequence : sequences) {
    scores.push_back(in_context(sequence.place, [&] { return score(sequence); }));
    done += std::ssize(sequence.ids);
    diagnostics.progress(stage, done, total, "tokens");
  }
  return scores;
}

}  // namespace

std::vector<SequenceScores> score_all(Scorer& scorer, const std::vector<ScoredSequence>& sequences,
                                      Diagnostics& diagnostics) {
  return score_each(sequences, "eval", diagnostics, [&](const ScoredSequence& sequence) {
    return scorer.score(sequence.ids, sequence.first_scored);
  });
}

std::vector<SequenceScores> score_layers(Scorer& scorer,
                                         const std::vector<ScoredSequence>& sequences, size_t model,
                                         const std::vector<int64_t>& layers,
                                         Diagnostics& diagnostics) {
  return score_each(
      sequences, "eval, layer by layer", diagnostics, [&](const ScoredSequence& sequence) {
        return scorer.score_layers(sequence.ids, sequence.first_scored, model, layers);
      });
}

}  // namespace kvcal
