#pragma once

#include <optional>
#include <string>

#include "quant/observer.h"
#include "quant/quant_scheme.h"
#include "recipe/fields.h"

namespace kvcal {

/// Observer that a field names, in its canonical spelling. Throws Error, with the nearest name,
/// where it is unknown or not supported in that role.
std::string read_observer(const Field& field, ArgsRole role);

/// Sets the observer of args: the modifier's observer for all of its groups, else the one in args,
/// else the default. Dynamic args get no default. Source: llm-compressor
/// `QuantizationMixin._apply_observer_overrides`, except the default for inputs.
void settle_observer(QuantArgs& args, ArgsRole role,
                     const std::optional<std::string>& from_modifier);

/// Reads a map of compressed-tensors' QuantizationArgs, restricted to values that an engine can
/// load in that role (docs/recipes.md). Names strategy and observer, also where they are defaults.
/// from_modifier: the observer that the modifier names for all of its groups. Throws Error.
QuantArgs read_quant_args(const Field& field, ArgsRole role,
                          const std::optional<std::string>& from_modifier = {});

}  // namespace kvcal
