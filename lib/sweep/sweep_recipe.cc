#include "sweep/sweep_recipe.h"

#include <algorithm>

namespace kvcal {
namespace {

/// Whether the scheme is one of attention, whose inputs are queries, keys and values.
bool is_for_attention(const QuantScheme& scheme) {
  return scheme.input_activations && !scheme.weights;
}

template <class Condition>
bool any_group(const Recipe& recipe, const Condition& condition) {
  return std::ranges::any_of(recipe.modifiers, [&](const Modifier& modifier) {
    return std::ranges::any_of(modifier.config_groups,
                               [&](const auto& group) { return condition(group.second); });
  });
}

}  // namespace

Recipe statistics_recipe() {
  QuantArgs args;
  args.type = QuantType::kFloat;
  args.strategy = Strategy::kTensor;
  args.observer = "static_minmax";
  Modifier modifier;
  modifier.stage = modifier.group = "sweep";
  modifier.kv_cache_scheme = std::move(args);
  Recipe recipe;
  recipe.modifiers.push_back(std::move(modifier));
  return recipe;
}

bool quantizes_kv(const Recipe& recipe) {
  return std::ranges::any_of(recipe.modifiers,
                             [](const Modifier& one) { return one.kv_cache_scheme.has_value(); }) ||
         any_group(recipe, is_for_attention);
}

bool quantizes_weights(const Recipe& recipe) {
  return any_group(recipe, [](const QuantScheme& scheme) { return scheme.weights.has_value(); });
}

bool has_static_inputs(const Recipe& recipe) {
  return any_group(recipe, [](const QuantScheme& scheme) {
    return scheme.weights && scheme.input_activations && !scheme.input_activations->dynamic;
  });
}

bool needs_more_than_kv(const Recipe& recipe) {
  return has_static_inputs(recipe) || any_group(recipe, is_for_attention);
}

Recipe without_kv(const Recipe& recipe) {
  Recipe rest = recipe;
  for (Modifier& modifier : rest.modifiers) {
    modifier.kv_cache_scheme.reset();
    std::erase_if(modifier.config_groups,
                  [](const auto& group) { return is_for_attention(group.second); });
  }
  // A modifier of K and V alone is empty now.
  std::erase_if(rest.modifiers, [](const Modifier& one) { return one.config_groups.empty(); });
  return rest;
}

}  // namespace kvcal
