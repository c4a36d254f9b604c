#pragma once

#include "core/diagnostics.h"
#include "sweep/sweep_folder.h"
#include "sweep_inputs.h"

namespace kvcal {

/// Scores cells that run the same weights, with one pass of the 16-bit reference for all, and
/// leaves each one's result, or why it has none, in the folder. Their calibrations are there.
void evaluate_cells(const SweepOptions& options, const Sweep& sweep,
                    const std::vector<size_t>& cells, const SweepFolder& folder, Backend& backend,
                    Diagnostics& diagnostics);

/// What a cell makes of the sweep's word problems.
void answer_questions(const SweepOptions& options, const Sweep& sweep, const Cell& cell,
                      const SweepFolder& folder, Backend& backend, Diagnostics& diagnostics);

}  // namespace kvcal
