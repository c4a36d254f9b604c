#include "recipe/grammar.h"

#include "recipe/fields.h"
#include "recipe/kv_scheme.h"
#include "recipe/target.h"

#include <optional>
#include <utility>

namespace kvcal {
namespace {

/// A modifier while it is being read.
struct Draft {
  Modifier modifier;
  bool has_kv_cache_scheme = false;
};

/// The document while it is being read.
struct Document {
  std::optional<Recipe> recipe;
  int scheme_line = 0;  ///< of the first kv_cache_scheme, for the message about a second
};

/// Where a modifier stands.
struct Place {
  std::string stage, group;  ///< without "_stage" and "_modifiers"
};

void accept_kv_cache_scheme(const Field& field, Draft& draft) {
  if (is_null(field)) return;
  draft.modifier.kv_cache_scheme = read_kv_cache_scheme(field);
  draft.has_kv_cache_scheme = true;
}

void check_patterns(const Field& field, const std::vector<std::string>& patterns) {
  for (size_t i = 0; i < patterns.size(); ++i) {
    const YamlNode& place = field.value.items.empty() ? field.value : field.value.items[i];
    in_context(place_of(place) + field.path, [&] { check_target(patterns[i]); });
  }
}

void accept_targets(const Field& field, Draft& draft) {
  const bool is_list = field.value.kind == YamlNode::Kind::kList;
  draft.modifier.targets = is_list ? read_strings(field) : std::vector{read_string(field)};
  check_patterns(field, draft.modifier.targets);
}

void accept_ignore(const Field& field, Draft& draft) {
  draft.modifier.ignore = read_strings(field);
  check_patterns(field, draft.modifier.ignore);
}

/// Keys whose work is not done: null is the same as not given, anything else is refused.
template <class Target>
void refuse_unless_null(const Field& field, Target&) {
  if (is_null(field)) return;
  fail_at(field.key, field.path,
          ": weights and activations are not quantized yet, only kv_cache_scheme is performed");
}

// The fields llm-compressor gives every modifier have no effect on a one-shot calibration. A value
// that would have one if it were obeyed is refused.

void accept_index(const Field& field, Draft&) {
  if (!is_null(field) && read_int(field) < 0)
    fail_field(field, "found ", field.value.text, ", expected null or an index from 0");
}

void accept_group(const Field& field, Draft& draft) {
  if (!is_null(field)) draft.modifier.group = read_string(field);
}

void accept_start(const Field& field, Draft&) {
  if (!is_null(field) && read_number(field) != 0.0)
    fail_field(field, "found ", field.value.text,
               ", expected null or 0: calibration has no epochs");
}

void accept_end(const Field& field, Draft&) {
  if (!is_null(field) && read_number(field) != -1.0)
    fail_field(field, "found ", field.value.text,
               ", expected null or -1: calibration has no epochs");
}

void accept_update(const Field& field, Draft&) {
  if (!is_null(field) && read_number(field) != 0.0)
    fail_field(field, "found ", field.value.text,
               ", expected null or 0: calibration has no epochs");
}

void accept_any_bool(const Field& field, Draft&) {
  read_bool(field);
}

// Inside config_groups; only a group that quantizes nothing can be taken, as old KV-only recipes
// have it.

struct Group {
  bool has_targets = false;
};

void accept_group_targets(const Field& field, Group& group) {
  check_patterns(field, read_strings(field));
  group.has_targets = true;
}

constexpr FieldRow<Group> kGroupFields[] = {
    {"targets", accept_group_targets},
    {"weights", refuse_unless_null<Group>},
    {"input_activations", refuse_unless_null<Group>},
    {"output_activations", refuse_unless_null<Group>},
    {"format", refuse_unless_null<Group>},
};

void accept_config_groups(const Field& field, Draft&) {
  if (is_null(field)) return;
  if (field.value.kind != YamlNode::Kind::kMap)
    fail_field(field, "found ", describe(field.value), ", expected a map of groups");
  for (const auto& [key, value] : field.value.entries) {
    Group group;
    const Field of_group{field.path + "." + key.text, key, value};
    read_fields<Group>(of_group, kGroupFields, group);
    if (!group.has_targets) fail_at(key, of_group.path, ": 'targets' is missing");
  }
}

// QuantizationModifier. Source: llm-compressor `QuantizationMixin` and `Modifier`.
constexpr FieldRow<Draft> kModifierFields[] = {
    {"targets", accept_targets},
    {"ignore", accept_ignore},
    {"kv_cache_scheme", accept_kv_cache_scheme},
    {"config_groups", accept_config_groups},
    {"scheme", refuse_unless_null<Draft>},
    {"weight_observer", refuse_unless_null<Draft>},
    {"input_observer", refuse_unless_null<Draft>},
    {"output_observer", refuse_unless_null<Draft>},
    {"observer", refuse_unless_null<Draft>},
    {"bypass_divisibility_checks", accept_any_bool},
    {"requires_calibration_data", accept_any_bool},
    {"index", accept_index},
    {"group", accept_group},
    {"start", accept_start},
    {"end", accept_end},
    {"update", accept_update},
};

void read_quantization_modifier(const Field& field, const Place& place, Document& document) {
  check_filled_map(field, "fields, kv_cache_scheme among them");
  Draft draft;
  draft.modifier.stage = place.stage;
  draft.modifier.group = place.group;
  read_fields<Draft>(field, kModifierFields, draft);
  if (!draft.has_kv_cache_scheme)
    fail_at(field.key, field.path, ": asks for nothing, expected a kv_cache_scheme");
  if (document.recipe)
    fail_at(field.key, field.path,
            ": a second kv_cache_scheme; the first is in the modifier on line ",
            document.scheme_line);
  document.scheme_line = field.key.line;
  document.recipe.emplace().modifiers.push_back(std::move(draft.modifier));
}

void refuse_modifier(const Field& field, const Place&, Document&) {
  fail_at(field.key, field.path,
          ": is not performed, only QuantizationModifier with kv_cache_scheme is");
}

struct ModifierRow {
  std::string_view name;
  void (*read)(const Field&, const Place&, Document&);
};
constexpr ModifierRow kModifiers[] = {
    {"QuantizationModifier", read_quantization_modifier},
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

void read_modifier(const Field& field, const Place& place, Document& document) {
  if (const ModifierRow* row = find_modifier(field.key.text)) {
    row->read(field, place, document);
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

void read_stage(const Field& field, Document& document) {
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
      read_modifier({group.path + "." + name.text, name, fields}, place, document);
  }
}

/// `args` substitutes nothing, here as in llm-compressor; it may stand there.
void accept_args(const Field& field) {
  if (field.value.kind != YamlNode::Kind::kMap)
    fail_field(field, "found ", describe(field.value), ", expected a map");
}

}  // namespace

Recipe read_recipe_tree(const YamlNode& document_node) {
  if (document_node.kind == YamlNode::Kind::kNull) fail("the recipe is empty, expected a stage");
  if (document_node.kind != YamlNode::Kind::kMap || document_node.entries.empty())
    fail_at(document_node, "found ", describe(document_node), ", expected a map of stages");
  Document document;
  for (const auto& [key, value] : document_node.entries) {
    const Field field{key.text, key, value};
    if (key.text == "args") {
      accept_args(field);
    } else if (key.text.ends_with(kStageEnding)) {
      read_stage(field, document);
    } else {
      fail_at(key, "found ", describe(key),
              ", expected 'args' or a stage, a key that ends in '_stage'",
              " (such as 'quant_stage')");
    }
  }
  if (!document.recipe) fail("the recipe holds no stage, expected one with a QuantizationModifier");
  return *std::move(document.recipe);
}

}  // namespace kvcal
