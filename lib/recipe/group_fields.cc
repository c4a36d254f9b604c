#include "recipe/group_fields.h"

#include <algorithm>
#include <array>
#include <utility>

#include "quant/module_target.h"
#include "recipe/args_fields.h"
#include "recipe/presets.h"

namespace kvcal {
namespace {

/// A config group under construction.
struct Draft {
  const GroupObservers& observers;
  QuantScheme scheme = {};
  PatternPlaces places = {};
  std::optional<Field> format = {}, inputs = {}, targets = {};
};

void accept_targets(const Field& field, Draft& draft) {
  if (field.value.kind != YamlNode::Kind::kList) read_strings(field);  // says what is wrong
  draft.scheme.targets = read_patterns(field, draft.places);
  draft.targets.emplace(field);
}

void accept_weights(const Field& field, Draft& draft) {
  if (!is_null(field))
    draft.scheme.weights = read_quant_args(field, ArgsRole::kWeights, draft.observers.weights);
}

void accept_inputs(const Field& field, Draft& draft) {
  if (is_null(field)) return;
  draft.scheme.input_activations =
      read_quant_args(field, ArgsRole::kInputs, draft.observers.inputs);
  draft.inputs.emplace(field);
}

void refuse_outputs(const Field& field, Draft&) {
  if (!is_null(field)) fail_found(field, "null: no engine reads scales of FP8 outputs");
}

void keep_format(const Field& field, Draft& draft) {
  if (!is_null(field)) draft.format.emplace(field);
}

// Source: compressed-tensors `QuantizationScheme`.
constexpr FieldRow<Draft> kGroupFields[] = {
    {"targets", accept_targets},
    {"weights", accept_weights},
    {"input_activations", accept_inputs},
    {"output_activations", refuse_outputs},
    {"format", keep_format},
};

/// Formats of a group with weights that give the tensors that kvcal writes.
constexpr CompressionFormat kQuantizedFormats[] = {CompressionFormat::kFloatQuantized,
                                                   CompressionFormat::kNaiveQuantized};

/// ", which is outside FP8" for another of compressed-tensors' `CompressionFormat`, else the
/// nearest expected one.
std::string format_hint(const std::string& found, const std::vector<std::string>& expected) {
  constexpr auto kOutside = std::to_array<std::string_view>(
      {"int-quantized", "pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
       "mxfp6-pack-quantized", "mxfp8-quantized", "marlin-24", "sparse-bitmask",
       "sparse-24-bitmask"});
  if (std::ranges::find(kOutside, found) != kOutside.end()) return ", which is outside FP8";
  if (found == "mixed-precision") return ", which is said of a checkpoint, not of a group";
  return did_you_mean(found, expected);
}

void settle_format(Draft& draft) {
  if (!draft.format) return;
  const Field& field = *draft.format;
  const std::string found = read_string(field);
  std::vector<std::string> names;
  std::string expected = "null";
  const auto take = [&](CompressionFormat format) {
    names.push_back(name_of(format));
    expected += " or '" + names.back() + "'";
    if (found == names.back()) draft.scheme.format = format;
  };
  if (!draft.scheme.weights) take(CompressionFormat::kDense);
  if (draft.scheme.weights)
    for (const CompressionFormat format : kQuantizedFormats) take(format);
  if (draft.scheme.format) return;
  fail_field(field, "found ", describe(field.value), format_hint(found, names), ", expected ",
             expected, ": null stands for '", name_of(format_of(draft.scheme)), "'");
}

/// Checks the conditions between the fields of a group.
void check_group(const Draft& draft) {
  const QuantScheme& scheme = draft.scheme;
  const std::optional<QuantArgs>& inputs = scheme.input_activations;
  if (scheme.targets.empty() && (scheme.weights || inputs))
    fail_found(*draft.targets, "at least one class name, module name or 're:...'");
  if (!inputs) return;
  if (!scheme.weights && inputs->dynamic)
    fail_field(*draft.inputs,
               "found dynamic: true, expected false: a group without weights is for "
               "attention, whose scales are static");
  if (!scheme.weights) return;
  if (inputs->strategy == Strategy::kAttnHead)
    fail_field(*draft.inputs,
               "found strategy 'attn_head' beside weights, expected 'tensor', 'token' "
               "or 'group': only attention has heads");
  if (scheme.weights->strategy == Strategy::kBlock && !inputs->dynamic)
    fail_field(*draft.inputs,
               "found dynamic: false, expected true: weights are in blocks, whose "
               "inputs vLLM quantizes while serving");
}

/// Records the places of a group's targets. compressed-tensors keeps only the last group with equal
/// targets.
void take_targets(const std::string& group, const PatternPlaces& targets, Modifier& modifier) {
  for (const auto& [target, place] : targets) {
    const auto [known, is_new] = modifier.target_places.emplace(target, place);
    if (!is_new)
      fail(text_of(place), group, ": '", target, "' is a target already, on line ",
           known->second.line, "; of equal targets one group alone would count");
  }
}

QuantScheme read_group(const Field& field, const GroupObservers& observers, Modifier& modifier) {
  Draft draft{.observers = observers};
  read_fields<Draft>(field, kGroupFields, draft);
  if (!draft.targets) fail_at(field.key, field.path, ": 'targets' is missing");
  settle_format(draft);
  check_group(draft);
  take_targets(field.path, draft.places, modifier);
  return std::move(draft.scheme);
}

QuantScheme preset_group(const YamlNode& name, const std::string& path,
                         const GroupObservers& observers) {
  QuantScheme scheme = read_preset(name, path);
  if (scheme.weights) settle_observer(*scheme.weights, ArgsRole::kWeights, observers.weights);
  if (scheme.input_activations)
    settle_observer(*scheme.input_activations, ArgsRole::kInputs, observers.inputs);
  return scheme;
}

void add_preset_group(QuantScheme scheme, std::vector<std::string> targets, Modifier& modifier) {
  scheme.targets = std::move(targets);
  const std::string name = "group_" + std::to_string(modifier.config_groups.size());
  modifier.config_groups.emplace_back(name, std::move(scheme));
}

}  // namespace

std::vector<std::string> read_patterns(const Field& field, PatternPlaces& places) {
  const bool is_list = field.value.kind == YamlNode::Kind::kList;
  std::vector<std::string> patterns =
      is_list ? read_strings(field) : std::vector{read_string(field)};
  for (size_t i = 0; i < patterns.size(); ++i) {
    const YamlNode& node = is_list ? field.value.items[i] : field.value;
    in_context(place_of(node) + field.path, [&] { check_target(patterns[i]); });
    places.emplace(patterns[i], node.place);
  }
  return patterns;
}

void read_config_groups(const Field& field, const GroupObservers& observers, Modifier& modifier) {
  if (field.value.kind != YamlNode::Kind::kMap) fail_found(field, "a map of groups");
  modifier.has_config_groups = true;
  for (const auto& [key, value] : field.value.entries)
    modifier.config_groups.emplace_back(
        key.text, read_group({field.path + "." + key.text, key, value}, observers, modifier));
}

void read_scheme(const Field& field, const GroupObservers& observers, Modifier& modifier) {
  if (field.value.kind != YamlNode::Kind::kMap) {
    modifier.scheme = read_string(field);
    QuantScheme scheme = preset_group(field.value, field.path, observers);
    // llm-compressor's default.
    const bool has_targets = !modifier.targets.empty();
    if (!has_targets) modifier.target_places.emplace("Linear", field.value.place);
    return add_preset_group(std::move(scheme),
                            has_targets ? modifier.targets : std::vector<std::string>{"Linear"},
                            modifier);
  }
  check_filled_map(field, "presets and their targets");
  for (const auto& [key, value] : field.value.entries) {
    QuantScheme scheme = preset_group(key, field.path, observers);
    const Field targets{field.path + "." + key.text, key, value};
    PatternPlaces places;
    std::vector<std::string> patterns = read_patterns(targets, places);
    if (patterns.empty()) fail_field(targets, "found an empty list, expected at least one target");
    take_targets(targets.path, places, modifier);
    modifier.scheme_map.emplace_back(key.text, patterns);
    add_preset_group(std::move(scheme), std::move(patterns), modifier);
  }
}

}  // namespace kvcal
