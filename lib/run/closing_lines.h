#pragma once

#include <string>
#include <utility>
#include <vector>

#include "run/calibration_result.h"

namespace kvcal {

/// What scales are worth, in words: pairs of a label and a text of one line.
std::vector<std::pair<std::string, std::string>> summary_lines(const ScaleSummary& summary);

/// What the cache is predicted to cost; empty where that is not known.
std::vector<std::pair<std::string, std::string>> predicted_lines(const ScaleSummary& summary);

/// The cost of a calibration and its summary_lines. Empty where no cache was calibrated.
std::vector<std::pair<std::string, std::string>> made_lines(const CalibrationResult& result);

/// predicted_lines, and then made_lines.
std::vector<std::pair<std::string, std::string>> closing_lines(const CalibrationResult& result);

}  // namespace kvcal
