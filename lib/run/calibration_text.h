#pragma once

#include <string>
#include <vector>

#include "run/calibration_result.h"

namespace kvcal {

// A calibration in words and tables, as lines for a terminal. Each text is whole lines.

/// A table of the attention modules, and of the inputs of Linears where there are any; then the
/// number of weights that were written, and closing_lines. A table of more than most_rows rows has
/// a summary instead.
std::string calibration_text(const CalibrationResult& result, size_t most_rows);

/// The reason for which a run ended before its last sample; empty where scales were not stable,
/// which is a warning of the run.
std::string stop_text(const StopOutcome& stop);

/// A table of the work of each rank.
std::string shares_text(const std::vector<RankShare>& shares);

/// Pairs of a label and a text, a line each.
std::string labelled_text(const std::vector<std::pair<std::string, std::string>>& lines);

}  // namespace kvcal
