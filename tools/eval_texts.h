#pragma once

#include <vector>

#include "core/json.h"
#include "eval_options.h"
#include "eval_variants.h"

namespace kvcal {

/// How the first count sequences go on with each cache: from their first tokens greedily, beside
/// the reference's text, the first token that differs and KL token by token. Only of variants that
/// share the reference's weights.
Json texts_json(const EvalVariants& variants, const std::vector<ScoredSequence>& sequences,
                int64_t count, Diagnostics& diagnostics);

}  // namespace kvcal
