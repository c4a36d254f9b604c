#pragma once

#include <ostream>

#include "sweep_estimate.h"
#include "sweep_inputs.h"

namespace kvcal {

/// The ids of all cells, a line each; with options.json a list.
void print_ids(const SweepOptions& options, const Sweep& sweep);

/// What is to be done, how long it will take and what memory. open: the tasks that are left, on
/// jobs devices at a time.
void print_plan(const SweepOptions& options, const Sweep& sweep, const std::vector<SweepTask>& open,
                const SweepEstimate& estimate, size_t jobs, std::ostream& out);

/// results.json as a table.
void print_cells(const Json& results);

/// "1:05:09", "4:30"
std::string time_text(double seconds);

}  // namespace kvcal
