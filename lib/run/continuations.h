#pragma once

#include <vector>

#include "core/json.h"
#include "run/eval_variants.h"

namespace kvcal {

/// Greedy continuations of the first count sequences with each cache, beside the reference's text:
/// the first token that differs, and KL token by token. Only for variants that share the
/// reference's weights. Warns of a folder without a tokenizer.
Json continuations_json(const EvalVariants& variants, const std::vector<ScoredSequence>& sequences,
                        int64_t count, Diagnostics& diagnostics);

}  // namespace kvcal
