#pragma once

#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "eval_options.h"
#include "eval_variants.h"

namespace kvcal {

/// The sequences of --dataset.
std::vector<ScoredSequence> read_sequences(const EvalOptions& options, EvalVariants& variants,
                                           Diagnostics& diagnostics);

/// Scores of all variants, sequence by sequence, told as progress.
std::vector<SequenceScores> score_all(Scorer& scorer, const std::vector<ScoredSequence>& sequences,
                                      Diagnostics& diagnostics);

/// The same of one FP8 variant of which only one layer's cache is quantized: models[i] of a result
/// is of layers[i].
std::vector<SequenceScores> score_layers(Scorer& scorer,
                                         const std::vector<ScoredSequence>& sequences, size_t model,
                                         const std::vector<int64_t>& layers,
                                         Diagnostics& diagnostics);
/// The layers whose cache a variant quantizes.
std::vector<int64_t> quantized_layers(const EvalVariant& variant);

/// The numbers of one variant, as --json has them.
Json likelihood_json(const EvalVariant& variant, const Likelihood& result);

/// What every task's JSON begins with: the run as it was asked for.
Json run_json(const EvalOptions& options, const EvalVariants& variants, size_t num_sequences);

/// json, whose "variants" hold each one's numbers: those of a single one beside the run's own.
Json printed_json(Json json, const EvalVariants& variants);

/// --task perplexity and kl.
void run_likelihood(const EvalOptions& options);

}  // namespace kvcal
