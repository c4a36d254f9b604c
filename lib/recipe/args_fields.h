#pragma once

#include "quant/quant_args.h"
#include "recipe/fields.h"
#include "recipe/observer_fields.h"

#include <optional>
#include <string>

namespace kvcal {

/// Reads a map of compressed-tensors' QuantizationArgs, restricted to values that an engine can
/// load in that role (docs/recipes.md). Names strategy and observer, also where they are defaults.
/// from_modifier: the observer that the modifier names for all of its groups. Throws Error.
QuantArgs read_quant_args(const Field& field, ArgsRole role,
                          const std::optional<std::string>& from_modifier = {});

}  // namespace kvcal
