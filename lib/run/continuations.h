#pragma once

#include <vector>

#include "report/eval_report.h"
#include "run/eval_variants.h"

namespace kvcal {

/// Greedy continuations of the first count sequences with each cache, beside the reference's text:
/// the first token that differs, and KL token by token. Only for variants that share the
/// reference's weights. Warns of a folder without a tokenizer.
std::vector<report::ComparedTexts> continuations_of(const EvalVariants& variants,
                                                    const std::vector<ScoredSequence>& sequences,
                                                    int64_t count, Diagnostics& diagnostics);

}  // namespace kvcal
