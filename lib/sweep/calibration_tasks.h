#pragma once

#include "sweep/task_context.h"

namespace kvcal {

/// Runs the exact forward pass over the samples and writes its statistics into the folder. Throws
/// Error.
void collect_statistics(const TaskContext& context, const Observation& observation);

/// Makes the scales, and the checkpoint with FP8 weights where the plan has one, and writes the
/// manifest into the folder. The statistics that the scales are derived from exist. Throws Error.
void make_scales(const TaskContext& context, const PlannedCalibration& planned);

}  // namespace kvcal
