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

/// Reads and checks a list of patterns, and records their places; a string is a list of one. Throws
/// Error.
std::vector<std::string> read_patterns(const Field& field, PatternPlaces& places);

/// Reads `config_groups` into the modifier's groups and names their observers. Throws Error.
void read_config_groups(const Field& field, const GroupObservers& observers, Modifier& modifier);

/// Reads `scheme`, a preset's name or a map from presets to targets, into the modifier's groups. A
/// name applies to the modifier's targets, which must be read before, or to Linear. Throws Error.
void read_scheme(const Field& field, const GroupObservers& observers, Modifier& modifier);

}  // namespace kvcal
