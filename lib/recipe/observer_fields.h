#pragma once

#include "core/json.h"
#include "quant/quant_args.h"
#include "recipe/fields.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kvcal {

/// What QuantizationArgs are for, which decides what they may hold.
enum class ArgsRole { kKvCache, kWeights, kInputs };

/// Why not, for each ArgsRole in its order; empty where nothing speaks against it.
using RoleReasons = std::array<std::string_view, 3>;
constexpr std::string_view reason_for(const RoleReasons& reasons, ArgsRole role) {
  return reasons[static_cast<size_t>(role)];
}

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
