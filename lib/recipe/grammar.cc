#include "recipe/recipe.h"

#include <algorithm>
#include <array>
#include <utility>

#include "recipe/args_fields.h"
#include "recipe/fields.h"
#include "recipe/group_fields.h"

namespace kvcal {
namespace {

/// A modifier under construction; checks between keys follow at the end.
struct Draft {
  Modifier modifier = {};
  PatternPlaces target_places = {};
  std::optional<Field> targets = {}, scheme = {}, config_groups = {}, observer = {};
  std::optional<Field> weight_observer = {}, input_observer = {}, output_observer = {};
};

void accept_targets(const Field& field, Draft& draft) {
  draft.modifier.targets = read_patterns(field, draft.target_places);
  draft.targets.emplace(field);
}

void accept_ignore(const Field& field, Draft& draft) {
  if (field.value.kind != YamlNode::Kind::kList) read_strings(field);  // says what is wrong
  draft.modifier.ignore = read_patterns(field, draft.modifier.ignore_places);
}

void accept_kv_cache_scheme(const Field& field, Draft& draft) {
  if (is_null(field)) return;
  draft.modifier.kv_cache_scheme = read_quant_args(field, ArgsRole::kKvCache);
  draft.modifier.kv_place = field.key.place;
}

/// Keeps a field that is not null for later.
template <std::optional<Field> Draft::*kept>
void keep(const Field& field, Draft& draft) {
  if (!is_null(field)) (draft.*kept).emplace(field);
}

/// An observer for all groups of the modifier.
template <ArgsRole role, std::optional<std::string> Modifier::*observer,
          std::optional<Field> Draft::*kept>
void accept_named(const Field& field, Draft& draft) {
  if (is_null(field)) return;
  read_observer(field, role);
  draft.modifier.*observer = field.value.text;
  (draft.*kept).emplace(field);
}

/// An entry of `observer`.
template <ArgsRole role>
void accept_entry(const Field& field, Draft& draft) {
  read_observer(field, role);
  draft.modifier.observer[field.key.text] = field.value.text;
}

constexpr FieldRow<Draft> kObserverFields[] = {
    {"weights", accept_entry<ArgsRole::kWeights>},
    {"input", accept_entry<ArgsRole::kInputs>},
    {"output", accept_entry<ArgsRole::kInputs>},
};

void accept_observer(const Field& field, Draft& draft) {
  if (is_null(field)) return;
  read_fields<Draft>(field, kObserverFields, draft);
  draft.observer.emplace(field);
}

// Fields that llm-compressor gives every modifier and that have no effect on a one-shot
// calibration. A value that would have an effect is refused.

void accept_index(const Field& field, Draft&) {
  if (!is_null(field) && read_int(field) < 0)
    fail_field(field, "found ", field.value.text, ", expected null or an index from 0");
}

void accept_group(const Field& field, Draft& draft) {
  if (!is_null(field)) draft.modifier.group = read_string(field);
}

/// Accepts the number that stands for no epochs.
template <int number>
void accept_no_epochs(const Field& field, Draft&) {
  if (!is_null(field) && read_number(field) != number)
    fail_field(field, "found ", field.value.text, ", expected null or ", number,
               ": calibration has no epochs");
}

void accept_bypass(const Field& field, Draft& draft) {
  draft.modifier.bypass_divisibility_checks = read_bool(field);
}

// QuantizationModifier. Source: llm-compressor `QuantizationMixin` and `Modifier`. Outputs are
// never quantized, so an observer of outputs has no effect, as in llm-compressor.
constexpr FieldRow<Draft> kModifierFields[] = {
    {"targets", accept_targets},
    {"ignore", accept_ignore},
    {"scheme", keep<&Draft::scheme>},
    {"config_groups", keep<&Draft::config_groups>},
    {"kv_cache_scheme", accept_kv_cache_scheme},
    {"weight_observer",
     accept_named<ArgsRole::kWeights, &Modifier::weight_observer, &Draft::weight_observer>},
    {"input_observer",
     accept_named<ArgsRole::kInputs, &Modifier::input_observer, &Draft::input_observer>},
    {"output_observer",
     accept_named<ArgsRole::kInputs, &Modifier::output_observer, &Draft::output_observer>},
    {"observer", accept_observer},
    {"bypass_divisibility_checks", accept_bypass},
    {"requires_calibration_data", [](const Field& field, Draft&) { read_bool(field); }},
    {"index", accept_index},
    {"group", accept_group},
    {"start", accept_no_epochs<0>},
    {"end", accept_no_epochs<-1>},
    {"update", accept_no_epochs<0>},
};

std::optional<std::string> observer_named(const std::optional<std::string>& name,
                                          const std::map<std::string, std::string>& names,
                                          const std::string& key) {
  const auto entry = names.find(key);
  if (entry != names.end()) return normalised_name(entry->second);
  if (name) return normalised_name(*name);
  return std::nullopt;
}

GroupObservers settle_observers(const Draft& draft) {
  for (const auto* named : {&draft.weight_observer, &draft.input_observer, &draft.output_observer})
    if (draft.observer && *named)
      fail_at(draft.observer->key, draft.observer->path, ": found beside '", (*named)->key.text,
              "', expected one or the other");
  const Modifier& modifier = draft.modifier;
  return {.weights = observer_named(modifier.weight_observer, modifier.observer, "weights"),
          .inputs = observer_named(modifier.input_observer, modifier.observer, "input")};
}

/// Throws Error for an observer without anything to observe: it was probably meant for the KV
/// cache.
void check_observers(const Draft& draft, const GroupObservers& observers) {
  bool has_weights = false, has_inputs = false, has_static_inputs = false;
  for (const auto& [name, scheme] : draft.modifier.config_groups) {
    has_weights |= scheme.weights.has_value();
    has_inputs |= scheme.input_activations.has_value();
    has_static_inputs |= scheme.input_activations && !scheme.input_activations->dynamic;
  }
  const auto refuse = [&](const std::optional<Field>& named, std::string_view why) {
    const Field& field = named ? *named : *draft.observer;
    fail_at(field.key, field.path, ": ", why,
            "; the observer of a KV cache stands in kv_cache_scheme");
  };
  if (observers.weights && !has_weights)
    refuse(draft.weight_observer, "no group quantizes weights");
  if (observers.inputs && !has_inputs) refuse(draft.input_observer, "no group quantizes inputs");
  if (observers.inputs && !has_static_inputs)
    refuse(draft.input_observer,
           "all groups have dynamic inputs, whose scales are made while serving, by no observer");
}

/// Throws Error for targets without a scheme given by name, which would have no effect. [Linear] is
/// llm-compressor's default, which it writes out.
void check_targets(Draft& draft) {
  if (!draft.targets) return;
  Modifier& modifier = draft.modifier;
  const Field& field = *draft.targets;
  if (draft.scheme && draft.scheme->value.kind != YamlNode::Kind::kMap) {
    if (modifier.targets.empty())
      fail_found(field, "at least one class name, module name or 're:...'");
    modifier.target_places = draft.target_places;
  } else if (!modifier.targets.empty() && modifier.targets != std::vector<std::string>{"Linear"}) {
    fail_at(field.key, field.path, ": has no effect, since targets are for a 'scheme' that is one ",
            draft.scheme          ? "name; here each preset has its own"
            : draft.config_groups ? "name; each of 'config_groups' has its own"
                                  : "name; a KV cache without some layers has those in 'ignore'");
  }
}

/// Reads the fields of a QuantizationModifier in this stage and group. Throws Error, also where the
/// modifier requests nothing.
Modifier read_quantization_modifier(const Field& field, const std::string& stage,
                                    const std::string& group) {
  check_filled_map(field, "fields, scheme, config_groups or kv_cache_scheme among them");
  Draft draft;
  Modifier& modifier = draft.modifier;
  modifier.stage = stage;
  modifier.group = group;
  modifier.place = field.key.place;
  read_fields<Draft>(field, kModifierFields, draft);
  const GroupObservers observers = settle_observers(draft);
  if (draft.scheme && draft.config_groups)
    fail_at(draft.scheme->key, draft.scheme->path,
            ": found beside 'config_groups', expected one or the other");
  check_targets(draft);
  if (draft.scheme) read_scheme(*draft.scheme, observers, modifier);
  if (draft.config_groups) read_config_groups(*draft.config_groups, observers, modifier);
  const bool has_group = std::ranges::any_of(
      modifier.config_groups, [](const auto& group) { return !group.second.targets.empty(); });
  if (!has_group && !modifier.kv_cache_scheme)
    fail_at(field.key, field.path,
            ": asks for nothing, expected a scheme, config_groups or a kv_cache_scheme");
  check_observers(draft, observers);
  return std::move(modifier);
}

/// Keys above a modifier, without "_stage" and "_modifiers".
struct Place {
  std::string stage, group;
};

constexpr std::string_view kPerformed = "QuantizationModifier";
/// Modifiers of llm-compressor that are not performed.
constexpr auto kRefused = std::to_array<std::string_view>(
    {"AWQModifier", "AutoRoundModifier", "ConstantPruningModifier", "GPTQModifier",
     "LogarithmicEqualizationModifier", "MagnitudePruningModifier", "QuIPModifier",
     "REAPPruningModifier", "SmoothQuantModifier", "SparseGPTModifier", "SpinQuantModifier",
     "WandaPruningModifier"});

bool is_modifier(std::string_view name) {
  return name == kPerformed || std::ranges::find(kRefused, name) != kRefused.end();
}

void read_modifier(const Field& field, const Place& place, Recipe& recipe) {
  const std::string& name = field.key.text;
  if (name == kPerformed)
    recipe.modifiers.push_back(read_quantization_modifier(field, place.stage, place.group));
  else if (is_modifier(name))
    fail_at(
        field.key, field.path,
        ": is not performed; kvcal performs QuantizationModifier alone. Let llm-compressor perform "
        "it: kvcal calibrate reads its output, and adds the scales of the cache");
  else
    fail_at(field.key, field.path, ": unknown modifier",
            did_you_mean(name, {std::string(kPerformed)}), ", expected QuantizationModifier");
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
      fail_at(
          key, field.path, ": found ", describe(key), ", expected a key that ends in '_modifiers'",
          is_modifier(key.text) ? ", with the modifier below it" : " (such as 'quant_modifiers')");
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

}  // namespace

Recipe read_recipe_tree(const YamlNode& document_node) {
  if (document_node.kind == YamlNode::Kind::kNull) fail("the recipe is empty, expected a stage");
  if (document_node.kind != YamlNode::Kind::kMap || document_node.entries.empty())
    fail_at(document_node, "found ", describe(document_node), ", expected a map of stages");
  Recipe recipe;
  for (const auto& [key, value] : document_node.entries) {
    const Field field{key.text, key, value};
    if (key.text == "args") {
      // It substitutes nothing, as in llm-compressor.
      if (value.kind != YamlNode::Kind::kMap) fail_found(field, "a map");
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
