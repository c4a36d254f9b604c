#pragma once

#include <vector>

#include "sweep/results.h"
#include "sweep_folder.h"
#include "sweep_inputs.h"

namespace kvcal {

/// What the folder knows of each cell.
std::vector<CellOutcome> outcomes_of(const Sweep& sweep, const SweepFolder& folder);

/// Writes results.json and results.csv, and gives the first.
Json write_results(const Sweep& sweep, const SweepFolder& folder);

}  // namespace kvcal
