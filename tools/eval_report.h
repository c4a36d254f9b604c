#pragma once

#include "core/json.h"
#include "plots.h"

namespace kvcal {

/// The page and plots of what `kvcal eval --json` prints. Does nothing where none is asked for.
void write_eval_report(const Json& result, const ReportOptions& options);

}  // namespace kvcal
