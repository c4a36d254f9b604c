#pragma once

#include "quant/observer.h"
#include "recipe/fields.h"

#include <optional>
#include <string>

namespace kvcal {

/// Observer that a field names, in its canonical spelling. Throws Error, with the nearest name,
/// where it is unknown or not supported in that role.
std::string read_observer(const Field& field, ArgsRole role);

/// Sets the observer of args: the modifier's observer for all of its groups, else the one in args,
/// else the default. Dynamic args get no default. Source: llm-compressor
/// `QuantizationMixin._apply_observer_overrides`, except the default for inputs.
void settle_observer(QuantArgs& args, ArgsRole role,
                     const std::optional<std::string>& from_modifier);

/// Reads `observer_kwargs` of args whose observer is set. Throws Error for a setting that the
/// observer does not have, or that is out of range.
Json read_observer_kwargs(const Field& field, ArgsRole role, const QuantArgs& args);

}  // namespace kvcal
