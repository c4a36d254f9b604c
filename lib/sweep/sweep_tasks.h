#pragma once

#include <vector>

#include "core/diagnostics.h"
#include "run/devices.h"
#include "sweep/plan.h"
#include "sweep/sweep_folder.h"

namespace kvcal {

/// Everything that a task of a sweep works with. Borrows.
struct TaskContext {
  const Sweep& sweep;
  const SweepFolder& folder;
  const DeviceOptions& device;
  Backend& backend;  ///< of that device
  Diagnostics& diagnostics;
};

/// Runs the exact forward pass over the samples and writes its statistics into the folder. Throws
/// Error.
void collect_statistics(const TaskContext& context, const Observation& observation);

/// Makes the scales, and the checkpoint with FP8 weights where the plan has one, and writes the
/// manifest into the folder. The statistics that the scales are derived from exist. Throws Error.
void make_scales(const TaskContext& context, const PlannedCalibration& planned);

/// Scores cells that run the same weights, with one pass of the 16-bit reference for all, and
/// writes the result of each into the folder, or why it has none. Their calibrations exist. Throws
/// Error.
void evaluate_cells(const TaskContext& context, const std::vector<size_t>& cells);

/// Answers the sweep's word problems with a cell. Throws Error.
void answer_questions(const TaskContext& context, const Cell& cell);

}  // namespace kvcal
