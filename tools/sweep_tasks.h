#pragma once

#include "core/diagnostics.h"
#include "sweep/schedule.h"
#include "sweep_folder.h"
#include "sweep_inputs.h"

namespace kvcal {

/// What statistics are collected with; any recipe's scales come from them.
Recipe statistics_recipe();

/// "observe", "calibrate", "evaluate", "answer"
std::string_view kind_name(SweepTask::Kind kind);

/// A task as an argument, "evaluate:" and the fingerprints of its parts, and back. Parsing throws
/// Error where the sweep has no such part any more.
std::string argument_of(const SweepTask& task, const SweepPlan& plan);
SweepTask task_of(const std::string& argument, const SweepPlan& plan);

/// What the folder has of each part already.
SweepProgress progress_of(const Sweep& sweep, const SweepFolder& folder);

/// Does it, unless it was done meanwhile, and leaves the result in the folder. A cell of several
/// whose scales cannot be had leaves why in its cell_error, and the others go on. Throws Error.
void run_task(const SweepOptions& options, const Sweep& sweep, const SweepTask& task,
              const SweepFolder& folder, Backend& backend, Diagnostics& diagnostics);

}  // namespace kvcal
