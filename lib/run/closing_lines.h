#pragma once

#include <string>
#include <utility>
#include <vector>

#include "run/calibration_result.h"

namespace kvcal {

/// What scales are worth, in words: pairs of a label and a text of one line.
std::vector<std::pair<std::string, std::string>> summary_lines(const ScaleSummary& summary);

/// What a calibration was worth, its cost and its summary_lines. Empty where no cache was
/// calibrated.
std::vector<std::pair<std::string, std::string>> closing_lines(const CalibrationResult& result);

}  // namespace kvcal
