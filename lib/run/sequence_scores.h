#pragma once

#include <vector>

#include "run/eval_variants.h"

namespace kvcal {

/// The sequences of the data set as the model's tokens. Throws Error where none has a token to
/// score; warns of sequences that are longer than the model's positions.
std::vector<ScoredSequence> read_sequences(const EvalOptions& options, const LoadedModel& model,
                                           Diagnostics& diagnostics);

/// Scores of all variants, a value a sequence. Progress is in tokens.
std::vector<SequenceScores> score_all(Scorer& scorer, const std::vector<ScoredSequence>& sequences,
                                      Diagnostics& diagnostics);

/// Scores of one FP8 variant of which only one layer's cache is quantized: models[i] of a value is
/// of layers[i].
std::vector<SequenceScores> score_layers(Scorer& scorer,
                                         const std::vector<ScoredSequence>& sequences, size_t model,
                                         const std::vector<int64_t>& layers,
                                         Diagnostics& diagnostics);

}  // namespace kvcal
