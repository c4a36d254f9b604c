#pragma once

#include "sweep/sweep_folder.h"
#include "sweep_devices.h"
#include "sweep_estimate.h"
#include "sweep_inputs.h"

namespace kvcal {

/// How many cells are evaluated together at most: they share the forward pass of the reference, and
/// a kill loses as many.
constexpr size_t kMostCellsTogether = 8;

/// The tasks that are left for the cells that are wanted.
std::vector<SweepTask> open_tasks(const SweepOptions& options, const Sweep& sweep,
                                  const std::vector<bool>& wanted, SweepProgress done);

/// Takes in how long tasks of earlier runs took: what this machine does in truth.
void learn_timings(const SweepFolder& folder, SweepEstimate& estimate);

/// Runs the tasks that are left for some cells, each in a process of its own, so that whatever ends
/// one leaves the others. A task that fails is told in its cells' cell_error. use: kWhole also
/// keeps results.json, results.csv and timings.json up to date, and takes checkpoints away that no
/// cell needs any more. Throws Interrupted.
void run_sweep(const SweepOptions& options, const Sweep& sweep, const std::vector<bool>& wanted,
               const SweepFolder& folder, SweepFolder::Use use, SweepEstimate& estimate);

}  // namespace kvcal
