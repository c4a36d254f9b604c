#pragma once

#include "recipe/fields.h"
#include "recipe/recipe.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kvcal {

/// Observers that a modifier names for all of its groups.
struct GroupObservers {
  std::optional<std::string> weights = {}, inputs = {};
};

using PatternPlaces = std::map<std::string, RecipePlace, std::less<>>;

/// A list of patterns, each checked, and where they stand; one string is a list of one. Throws
/// Error.
std::vector<std::string> read_patterns(const Field& field, PatternPlaces& places);

/// `config_groups`: fills the modifier's groups, with observers named. Throws Error.
void read_config_groups(const Field& field, const GroupObservers& observers, Modifier& modifier);

/// `scheme`, the name of a preset or a map of presets to targets: fills the modifier's groups.
/// Reads a scheme. A scheme that is a name takes the modifier's targets, which must be read before,
/// or Linear. Throws Error.
void read_scheme(const Field& field, const GroupObservers& observers, Modifier& modifier);

}  // namespace kvcal
