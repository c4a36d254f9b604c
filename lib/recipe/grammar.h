#pragma once

#include <string>

#include "recipe/fields.h"
#include "recipe/recipe.h"
#include "recipe/yaml.h"

namespace kvcal {

/// Reads the document: stages, groups of modifiers, modifiers, their fields. Throws Error with line
/// and column for everything that kvcal does not know, does not support, or that would have no
/// effect.
Recipe read_recipe_tree(const YamlNode& document);

}  // namespace kvcal
