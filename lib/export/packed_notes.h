#pragma once

#include <string>
#include <vector>

#include "export/weights_by_name.h"
#include "recipe/weight_scheme.h"

namespace kvcal {

/// Notes for the user, a sentence each, on quantized weights that engines run otherwise than
/// llm-compressor's format says.
std::vector<std::string> packed_notes(const WeightsByName& found, const WeightScheme& scheme);

}  // namespace kvcal
