#pragma once

#include <vector>

#include "run/eval_variants.h"

namespace kvcal {

/// Tokenized sequences of the data set. Throws Error where none has a token to score; warns of
/// sequences that exceed the model's positions.
std::vector<ScoredSequence> read_sequences(const EvalOptions& options, const LoadedModel& model,
                                           Diagnostics& diagnostics);
/// The same of records that a calibration has left: options' num_skipped becomes 0, and all records
/// are read, where those have no token to score.
std::vector<ScoredSequence> read_left_sequences(EvalOptions& options, const LoadedModel& model,
                                                Diagnostics& diagnostics);

/// Scores of all variants, one value per sequence. Progress is in tokens.
std::vector<SequenceScores> score_all(Scorer& scorer, const std::vector<ScoredSequence>& sequences,
                                      Diagnostics& diagnostics);

/// Scores of one FP8 variant with only one layer's cache quantized: models[i] of a value belongs to
/// layers[i].
std::vector<SequenceScores> score_layers(Scorer& scorer,
                                         const std::vector<ScoredSequence>& sequences, size_t model,
                                         const std::vector<int64_t>& layers,
                                         Diagnostics& diagnostics);

}  // namespace kvcal
