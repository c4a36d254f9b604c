#pragma once

#include <string>

#include "recipe/recipe.h"

namespace kvcal {

/// A recipe of a sweep. The parts that it quantizes decide which cells differ by it.
struct SweepRecipe {
  std::string name;
  Recipe recipe;
};

/// The recipe of the run that collects statistics; the scales of any recipe come from them.
Recipe statistics_recipe();

/// Whether it quantizes K and V.
bool quantizes_kv(const Recipe& recipe);
/// Whether it quantizes weights.
bool quantizes_weights(const Recipe& recipe);
/// Whether inputs of Linears get static scales, which need a run over text.
bool has_static_inputs(const Recipe& recipe);
/// Whether it quantizes queries or inputs of Linears: statistics of K and V are not enough.
bool needs_more_than_kv(const Recipe& recipe);

/// The part of a recipe for weights and inputs, for K and V that keep 16 bits or get other scales.
/// The recipe must quantize weights.
Recipe without_kv(const Recipe& recipe);

}  // namespace kvcal
