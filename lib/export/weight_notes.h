#pragma once

#include <string>
#include <vector>

#include "export/writer.h"

namespace kvcal {

/// Notes for the user, a sentence each, on FP8 weights and inputs of a plan that engines do not
/// support.
std::vector<std::string> weight_notes(const ExportInput& input);

}  // namespace kvcal
