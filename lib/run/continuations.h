#pragma once

#include <vector>

#include "core/json.h"
#include "run/eval_variants.h"

namespace kvcal {

/// How the first count sequences go on with each cache: from their first tokens greedily, beside
/// the reference's text, the first token that differs and KL token by token. Only variants that
/// share the reference's weights are in it. A folder without a tokenizer is a warning.
Json continuations_json(const EvalVariants& variants, const std::vector<ScoredSequence>& sequences,
                        int64_t count, Diagnostics& diagnostics);

}  // namespace kvcal
