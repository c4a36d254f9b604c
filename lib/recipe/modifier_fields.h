#pragma once

#include "recipe/fields.h"
#include "recipe/recipe.h"

#include <string>

namespace kvcal {

/// Reads the fields of a QuantizationModifier in this stage and group. Throws Error, also where the
/// modifier requests nothing.
Modifier read_quantization_modifier(const Field& field, const std::string& stage,
                                    const std::string& group);

}  // namespace kvcal
