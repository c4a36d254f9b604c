#pragma once

#include "core/diagnostics.h"
#include "sweep/schedule.h"
#include "sweep/sweep_folder.h"
#include "sweep_inputs.h"

namespace kvcal {

/// Does it, unless it was done meanwhile, and leaves the result in the folder. A cell of several
/// whose scales cannot be had leaves why in its cell_error, and the others go on. Throws Error.
void run_task(const SweepOptions& options, const Sweep& sweep, const SweepTask& task,
              const SweepFolder& folder, Backend& backend, Diagnostics& diagnostics);

}  // namespace kvcal
