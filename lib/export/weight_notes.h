#pragma once

#include <string>
#include <vector>

#include "export/writer.h"

namespace kvcal {

/// What engines do not do with the FP8 weights and inputs of a plan, a sentence each, for the user.
std::vector<std::string> weight_notes(const ExportInput& input);

}  // namespace kvcal
