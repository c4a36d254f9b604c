#pragma once

#include <vector>

#include "sweep/results.h"
#include "sweep/schedule.h"
#include "sweep/sweep_folder.h"

namespace kvcal {

/// Whether the folder holds the result of every part of the task.
bool is_done(const SweepTask& task, const Sweep& sweep, const SweepFolder& folder);

/// Which parts of the plan have their result in the folder.
SweepProgress progress_of(const Sweep& sweep, const SweepFolder& folder);

/// The result of each cell, or why it has none.
std::vector<CellOutcome> outcomes_of(const Sweep& sweep, const SweepFolder& folder);

/// The table of a whole sweep.
struct SweepResults {
  Json json;  ///< results.json
  report::SweepReport report;
};
/// Writes results.json and results.csv.
SweepResults write_results(const Sweep& sweep, const SweepFolder& folder);

}  // namespace kvcal
