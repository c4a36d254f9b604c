#pragma once

#include "core/json.h"
#include "plots.h"

namespace kvcal {

/// The page and plots of a sweep's results.json. Does nothing where none is asked for.
void write_sweep_report(const Json& results, const ReportOptions& options);

}  // namespace kvcal
