#pragma once

#include "quant/observer.h"
#include "recipe/fields.h"

#include <optional>
#include <string>

namespace kvcal {

/// The observer that a field names, in its usual spelling. Throws Error, with the nearest name, for
/// one that is unknown or not performed in that role.
std::string read_observer(const Field& field, ArgsRole role);

/// Names the observer of args: the one that the modifier names for all of its groups, else the one
/// args have, else the default, which dynamic args do without. Source: llm-compressor
/// `QuantizationMixin._apply_observer_overrides`; its default for inputs is another.
void settle_observer(QuantArgs& args, ArgsRole role,
                     const std::optional<std::string>& from_modifier);

/// `observer_kwargs` of args whose observer is settled. Throws Error for a setting that the
/// observer does not have, or that is out of range.
Json read_observer_kwargs(const Field& field, ArgsRole role, const QuantArgs& args);

}  // namespace kvcal
