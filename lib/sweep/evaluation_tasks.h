#pragma once

#include <vector>

#include "sweep/task_context.h"

namespace kvcal {

/// Scores cells that run the same weights, with one pass of the 16-bit reference for all, and
/// writes the result of each into the folder, or why it has none. Their calibrations exist. Throws
/// Error.
void evaluate_cells(const TaskContext& context, const std::vector<size_t>& cells);

/// Answers the sweep's word problems with a cell. Throws Error.
void answer_questions(const TaskContext& context, const Cell& cell);

}  // namespace kvcal
