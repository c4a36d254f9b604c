#pragma once

#include "eval_options.h"

namespace kvcal {

/// --task sensitivity: layers by the KL of their cache alone, and which of them to keep in 16 bits.
void run_sensitivity(const EvalOptions& options);

}  // namespace kvcal
