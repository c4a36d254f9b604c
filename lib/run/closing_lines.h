#pragma once

#include <string>
#include <utility>
#include <vector>

#include "run/calibration_result.h"

namespace kvcal {

/// What a calibration was worth, in words: pairs of a label and a text of one line. Empty where no
/// cache was calibrated.
std::vector<std::pair<std::string, std::string>> closing_lines(const CalibrationResult& result);

}  // namespace kvcal
