#pragma once

#include <string>

#include "recipe/recipe.h"

namespace kvcal {

/// A recipe of a sweep: what it asks for decides which cells differ by it.
struct SweepRecipe {
  std::string name;
  Recipe recipe;
};

/// The recipe that statistics are collected with; the scales of any recipe come from them.
Recipe statistics_recipe();

/// Whether it asks for scales of K and V.
bool quantizes_kv(const Recipe& recipe);
/// Whether it asks for FP8 weights.
bool quantizes_weights(const Recipe& recipe);
/// Whether inputs of Linears get static scales, for which text must be run.
bool has_static_inputs(const Recipe& recipe);
/// Whether statistics of K and V alone do not do: queries or inputs of Linears are quantized.
bool needs_more_than_kv(const Recipe& recipe);

/// What is left of it for weights and inputs, when K and V keep 16 bits or get other scales. The
/// recipe must quantize weights.
Recipe without_kv(const Recipe& recipe);

}  // namespace kvcal
