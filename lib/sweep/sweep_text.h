#pragma once

#include <string>
#include <vector>

#include "report/sweep_report.h"
#include "sweep/sweep_run.h"

namespace kvcal {

// A sweep in words and tables, as lines for a terminal.

/// The number of cells that need not be done again; empty for none.
std::string reuse_text(const SweepOutlook& outlook);
/// The plan's counts, and the work that is left.
std::string outlook_text(const Sweep& sweep, const SweepOutlook& outlook);
/// A table of the cells with those measures that distinguish them; of more than most_rows cells,
/// their number and those of the front.
std::string cells_text(const std::vector<report::SweepCell>& cells, size_t most_rows);

}  // namespace kvcal
