#include "recipe/grammar.h"

#include "recipe/fields.h"
#include "recipe/modifier_fields.h"

#include <algorithm>
#include <utility>

namespace kvcal {
namespace {

/// Keys above a modifier, without "_stage" and "_modifiers".
struct Place {
  std::string stage, group;
};

void read_performed(const Field& field, const Place& place, Recipe& recipe) {
  recipe.modifiers.push_back(read_quantization_modifier(field, place.stage, place.group));
}

void refuse_modifier(const Field& field, const Place&, Recipe&) {
  fail_at(field.key, field.path,
          ": is not performed; kvcal quantizes to FP8, with QuantizationModifier alone");
}

struct ModifierRow {
  std::string_view name;
  void (*read)(const Field&, const Place&, Recipe&);
};
constexpr ModifierRow kModifiers[] = {
    {"QuantizationModifier", read_performed},
    {"AWQModifier", refuse_modifier},
    {"AutoRoundModifier", refuse_modifier},
    {"ConstantPruningModifier", refuse_modifier},
    {"GPTQModifier", refuse_modifier},
    {"LogarithmicEqualizationModifier", refuse_modifier},
    {"MagnitudePruningModifier", refuse_modifier},
    {"QuIPModifier", refuse_modifier},
    {"REAPPruningModifier", refuse_modifier},
    {"SmoothQuantModifier", refuse_modifier},
    {"SparseGPTModifier", refuse_modifier},
    {"SpinQuantModifier", refuse_modifier},
    {"WandaPruningModifier", refuse_modifier},
};

const ModifierRow* find_modifier(std::string_view name) {
  for (const ModifierRow& row : kModifiers)
    if (row.name == name) return &row;
  return nullptr;
}

void read_modifier(const Field& field, const Place& place, Recipe& recipe) {
  if (const ModifierRow* row = find_modifier(field.key.text)) {
    row->read(field, place, recipe);
    return;
  }
  std::vector<std::string> performed;
  for (const ModifierRow& row : kModifiers)
    if (row.read != refuse_modifier) performed.emplace_back(row.name);
  fail_at(field.key, field.path, ": unknown modifier", did_you_mean(field.key.text, performed),
          ", expected QuantizationModifier");
}

constexpr std::string_view kStageEnding = "_stage", kGroupEnding = "_modifiers";

std::string without_ending(const std::string& key, std::string_view ending) {
  return key.substr(0, key.size() - ending.size());
}

void read_stage(const Field& field, Recipe& recipe) {
  check_filled_map(field, "groups, whose keys end in '_modifiers'");
  for (const auto& [key, value] : field.value.entries) {
    const Field group{field.path + "." + key.text, key, value};
    if (!key.text.ends_with(kGroupEnding)) {
      const bool is_modifier = find_modifier(key.text) != nullptr;
      fail_at(key, field.path, ": found ", describe(key),
              ", expected a key that ends in '_modifiers'",
              is_modifier ? ", with the modifier below it" : " (such as 'quant_modifiers')");
    }
    check_filled_map(group, "modifiers by class name");
    const Place place{without_ending(field.key.text, kStageEnding),
                      without_ending(key.text, kGroupEnding)};
    for (const auto& [name, fields] : value.entries)
      read_modifier({group.path + "." + name.text, name, fields}, place, recipe);
  }
}

bool quantizes(const Modifier& modifier) {
  const auto has_args = [](const auto& group) {
    return group.second.weights || group.second.input_activations;
  };
  return modifier.kv_cache_scheme || std::ranges::any_of(modifier.config_groups, has_args);
}

/// Accepts `args`, which substitutes nothing, as in llm-compressor.
void accept_args(const Field& field) {
  if (field.value.kind != YamlNode::Kind::kMap)
    fail_field(field, "found ", describe(field.value), ", expected a map");
}

}  // namespace

Recipe read_recipe_tree(const YamlNode& document_node) {
  if (document_node.kind == YamlNode::Kind::kNull) fail("the recipe is empty, expected a stage");
  if (document_node.kind != YamlNode::Kind::kMap || document_node.entries.empty())
    fail_at(document_node, "found ", describe(document_node), ", expected a map of stages");
  Recipe recipe;
  for (const auto& [key, value] : document_node.entries) {
    const Field field{key.text, key, value};
    if (key.text == "args") {
      accept_args(field);
    } else if (key.text.ends_with(kStageEnding)) {
      read_stage(field, recipe);
    } else {
      fail_at(key, "found ", describe(key),
              ", expected 'args' or a stage, a key that ends in '_stage'",
              " (such as 'quant_stage')");
    }
  }
  if (recipe.modifiers.empty())
    fail("the recipe holds no stage, expected one with a QuantizationModifier");
  if (std::ranges::none_of(recipe.modifiers, quantizes))
    fail("the recipe quantizes nothing, expected weights, input_activations or a kv_cache_scheme");
  return recipe;
}

}  // namespace kvcal
