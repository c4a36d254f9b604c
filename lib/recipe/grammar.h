#pragma once

#include "recipe/recipe.h"
#include "recipe/yaml_tree.h"

namespace kvcal {

/// Reads the document: stages, groups of modifiers, modifiers, their fields. Throws Error
/// with line and column for everything that is not understood, is not performed, or would do
/// nothing.
Recipe read_recipe_tree(const YamlNode& document);

}  // namespace kvcal
