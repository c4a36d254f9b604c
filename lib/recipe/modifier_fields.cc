#include "recipe/modifier_fields.h"

#include <algorithm>
#include <utility>

#include "recipe/args_fields.h"
#include "recipe/group_fields.h"

namespace kvcal {
namespace {

/// A modifier while it is being read; what depends on another key waits for the end.
struct Draft {
  Modifier modifier = {};
  std::optional<Field> scheme = {}, config_groups = {}, observer = {}, named_observer = {};
};

void accept_targets(const Field& field, Draft& draft) {
  draft.modifier.targets = read_patterns(field);
}

void accept_ignore(const Field& field, Draft& draft) {
  if (field.value.kind != YamlNode::Kind::kList) read_strings(field);  // says what is wrong
  draft.modifier.ignore = read_patterns(field);
}

void accept_kv_cache_scheme(const Field& field, Draft& draft) {
  if (!is_null(field)) draft.modifier.kv_cache_scheme = read_quant_args(field, ArgsRole::kKvCache);
}

void keep_scheme(const Field& field, Draft& draft) {
  if (!is_null(field)) draft.scheme.emplace(field);
}

void keep_config_groups(const Field& field, Draft& draft) {
  if (!is_null(field)) draft.config_groups.emplace(field);
}

void accept_named(const Field& field, ArgsRole role, std::optional<std::string>& observer,
                  Draft& draft) {
  if (is_null(field)) return;
  read_observer(field, role);
  observer = field.value.text;
  draft.named_observer.emplace(field);
}

void accept_weight_observer(const Field& field, Draft& draft) {
  accept_named(field, ArgsRole::kWeights, draft.modifier.weight_observer, draft);
}

void accept_input_observer(const Field& field, Draft& draft) {
  accept_named(field, ArgsRole::kInputs, draft.modifier.input_observer, draft);
}

// Outputs are never quantized, so no observer of them has an effect, here and there.

void accept_output_observer(const Field& field, Draft& draft) {
  accept_named(field, ArgsRole::kInputs, draft.modifier.output_observer, draft);
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

void accept_bypass(const Field& field, Draft& draft) {
  draft.modifier.bypass_divisibility_checks = read_bool(field);
}

void accept_any_bool(const Field& field, Draft&) {
  read_bool(field);
}

// QuantizationModifier. Source: llm-compressor `QuantizationMixin` and `Modifier`.
constexpr FieldRow<Draft> kModifierFields[] = {
    {"targets", accept_targets},
    {"ignore", accept_ignore},
    {"scheme", keep_scheme},
    {"config_groups", keep_config_groups},
    {"kv_cache_scheme", accept_kv_cache_scheme},
    {"weight_observer", accept_weight_observer},
    {"input_observer", accept_input_observer},
    {"output_observer", accept_output_observer},
    {"observer", accept_observer},
    {"bypass_divisibility_checks", accept_bypass},
    {"requires_calibration_data", accept_any_bool},
    {"index", accept_index},
    {"group", accept_group},
    {"start", accept_start},
    {"end", accept_end},
    {"update", accept_update},
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
  if (draft.observer && draft.named_observer)
    fail_at(draft.observer->key, draft.observer->path, ": found beside '",
            draft.named_observer->key.text, "', expected one or the other");
  const Modifier& modifier = draft.modifier;
  return {.weights = observer_named(modifier.weight_observer, modifier.observer, "weights"),
          .inputs = observer_named(modifier.input_observer, modifier.observer, "input")};
}

/// An observer that has nothing to observe was meant for something else, most likely the KV cache.
void check_observers(const Draft& draft, const GroupObservers& observers) {
  const auto& groups = draft.modifier.config_groups;
  const bool has_weights = std::ranges::any_of(
      groups, [](const auto& group) { return group.second.weights.has_value(); });
  const bool has_inputs = std::ranges::any_of(
      groups, [](const auto& group) { return group.second.input_activations.has_value(); });
  const bool is_idle_weights = observers.weights && !has_weights;
  if (!is_idle_weights && (!observers.inputs || has_inputs)) return;
  const Field& field = draft.observer ? *draft.observer : *draft.named_observer;
  fail_at(field.key, field.path, ": no group quantizes ", is_idle_weights ? "weights" : "inputs",
          "; the observer of a KV cache stands in kv_cache_scheme");
}

}  // namespace

Modifier read_quantization_modifier(const Field& field, const std::string& stage,
                                    const std::string& group) {
  check_filled_map(field, "fields, scheme, config_groups or kv_cache_scheme among them");
  Draft draft;
  Modifier& modifier = draft.modifier;
  modifier.stage = stage;
  modifier.group = group;
  modifier.line = field.key.line;
  read_fields<Draft>(field, kModifierFields, draft);
  const GroupObservers observers = settle_observers(draft);
  if (draft.scheme && draft.config_groups)
    fail_at(draft.scheme->key, draft.scheme->path,
            ": found beside 'config_groups', expected one or the other");
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

}  // namespace kvcal
