#include "engines/key_checks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/interrupt.h"
#include "core/pcre2_regex.h"
#include "core/text.h"

namespace kvcal {
namespace {

/// A text, whose expression, where it is one, can be compiled; "re:" begins an expression, which is
/// for the start of a name.
bool is_pattern(const Json& value) {
  constexpr std::string_view kExpression = "re:";
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  if (!text.starts_with(kExpression)) return true;
  throw_if_interrupted();  // a list may hold hundreds of thousands
  try {
    Pcre2Regex(
        text.substr(kExpression.size()),
        {.is_anchored = true, .max_steps = 100'000, .max_depth = 1'000, .max_heap_kib = 1024});
    return true;
  } catch (const RegexSyntaxError&) {
    return false;
  }
}

bool is_list_of(bool (*is_kind)(const Json&), const Json& value) {
  return value.is_array() && std::ranges::all_of(value, is_kind);
}

bool is_group(const Json& group) {
  return group.is_object() && group.contains("targets") && group.at("targets").is_array();
}

/// Where there are targets; engines look at no other groups.
bool has_weights(const Json& group) {
  return group.at("targets").empty() ||
         (group.contains("weights") && group.at("weights").is_object());
}

/// Of one class, whose name says so. Source: vLLM 0.32, `CompressedTensorsConfig.from_config`.
bool is_of_attention(const Json& group) {
  if (!is_group(group) || group.at("targets").size() != 1) return false;
  const Json& target = group.at("targets")[0];
  return target.is_string() && target.get_ref<const std::string&>().ends_with("Attention");
}

/// "torch.float32" or "float32". Source: compressed-tensors 0.20, `TorchDtype`.
bool is_dtype(const Json& value) {
  constexpr std::string_view kModule = "torch.";
  constexpr std::string_view kNames[] = {"float64",       "float32",     "float16", "bfloat16",
                                         "float8_e4m3fn", "float8_e5m2", "int64",   "int32",
                                         "int16",         "int8",        "uint8",   "bool"};
  if (!value.is_string()) return false;
  std::string_view name = value.get_ref<const std::string&>();
  if (name.starts_with(kModule)) name.remove_prefix(kModule.size());
  return std::ranges::find(kNames, name) != std::end(kNames);
}

/// A number, or a text of one, which pydantic reads as it.
bool is_number(const Json& value) {
  if (!value.is_string()) return value.is_number();
  const Json read = Json::parse(value.get_ref<const std::string&>(), nullptr, false);
  return read.is_number();
}

/// Of a model: "LlamaForCausalLM", "LlamaModel". Engines know no other names.
bool is_model_class(const Json& value) {
  if (!value.is_string()) return false;
  const std::string& name = value.get_ref<const std::string&>();
  return name.find("For") != std::string::npos || name.ends_with("Model");
}

/// The first conversions of Llama called it so, and transformers never did.
bool is_class_of_transformers(const Json& value) {
  return is_model_class(value) && value != "LLaMAForCausalLM";
}

using Kind = std::pair<std::string_view, bool (*)(const Json&)>;

constexpr Kind kKinds[] = {
    {"nothing", is_nothing},
    {"something", [](const Json& value) { return !is_nothing(value); }},
    {"a number", is_number},
    {"true or false", [](const Json& value) { return value.is_boolean(); }},
    {"a text", [](const Json& value) { return value.is_string(); }},
    {"a word", [](const Json& value) { return value.is_string() && !is_nothing(value); }},
    {"a dtype of torch", is_dtype},
    {"a list", [](const Json& value) { return value.is_array(); }},
    {"a list of two", [](const Json& value) { return value.is_array() && value.size() == 2; }},
    {"a list of texts",
     [](const Json& value) {
       return is_list_of([](const Json& one) { return one.is_string(); }, value);
     }},
    {"a list of model classes",
     [](const Json& value) { return !value.empty() && is_list_of(is_model_class, value); }},
    {"a list of classes of transformers",
     [](const Json& value) {
       return !value.empty() && is_list_of(is_class_of_transformers, value);
     }},
    {"a list of patterns", [](const Json& value) { return is_list_of(is_pattern, value); }},
    {"an object", [](const Json& value) { return value.is_object(); }},
    {"an object with entries",
     [](const Json& value) { return value.is_object() && !value.empty(); }},
    {"a group", is_group},  // of compressed-tensors, with a list of targets
    {"a group with weights",
     [](const Json& value) { return is_group(value) && has_weights(value); }},
    {"a group of attention", is_of_attention},
    {"group_0 alone",
     [](const Json& value) { return value.size() == 1 && value.contains("group_0"); }},
};

bool is_accepted(std::string_view accepted, const Json& value, bool ignores_case) {
  constexpr std::string_view kWithKey = "an object with ";
  if (const auto kind = std::ranges::find(kKinds, accepted, &Kind::first); kind != std::end(kKinds))
    return kind->second(value);
  if (accepted.starts_with(kWithKey))
    return value.is_object() && value.contains(accepted.substr(kWithKey.size()));
  const Json wanted = parse_json(accepted);
  if (ignores_case && value.is_string() && wanted.is_string())
    return ascii_lower(value.get<std::string>()) == ascii_lower(wanted.get<std::string>());
  return value == wanted;  // as Python compares: 8.0 is 8
}

struct Found {
  std::string path;
  const Json* value;  ///< nullptr: the object lacks the key
};

/// Null is there, other than for find_field.
const Json* key_of(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &*it;
}

/// The values that a check's key names, from `path` of `object` on.
std::vector<Found> values_at(const Json& object, std::string_view key, const std::string& path) {
  const size_t dot = key.find('.');
  const std::string_view first = key.substr(0, dot);
  std::vector<Found> members;
  if (first == "*") {
    for (const auto& [name, value] : object.items()) members.push_back({path + name, &value});
  } else {
    members.push_back({path + std::string(first), key_of(object, first)});
  }
  if (dot == std::string_view::npos) return members;
  std::vector<Found> found;
  for (const Found& member : members)
    if (member.value && member.value->is_object())
      std::ranges::copy(values_at(*member.value, key.substr(dot + 1), member.path + "."),
                        std::back_inserter(found));
  return found;
}

bool passes(const KeyCheck& check, const Json* value) {
  if (!value) return check.may_lack;
  return std::ranges::any_of(check.accepted, [&](std::string_view accepted) {
    return is_accepted(accepted, *value, check.ignores_case);
  });
}

}  // namespace

Json value_of(const Json& object, std::string_view key) {
  const Json* value = object.is_object() ? find_field(object, key) : nullptr;
  return value ? *value : Json();
}

bool is_nothing(const Json& value) {
  return value.empty() || value == false || value == 0 || value == "";
}

std::string failed_key(const std::vector<KeyCheck>& checks, const Json& object) {
  for (const KeyCheck& check : checks) {
    if (!failed_key(check.when, object).empty()) continue;
    for (const auto& [path, value] : values_at(object, check.key, {})) {
      if (passes(check, value)) continue;
      std::string accepted;
      for (const std::string_view text : check.accepted)
        accepted += (accepted.empty() ? "" : " or ") + std::string(text);
      return path + " is " + (value ? value->dump() : "missing") + ", it takes " + accepted;
    }
  }
  return {};
}

}  // namespace kvcal
