#include "descriptors/family_file.h"

#include <algorithm>

#include "core/json.h"
#include "descriptors/descriptor_fields.h"
#include "recipe/yaml.h"

namespace kvcal {
namespace {

constexpr size_t kWidth = 100;
constexpr std::string_view kStart = R"(name: my_family
# The built-in family that this file starts from (kvcal families lists them); fields say what differs.
like: llama
# Roles of its tensors that this family does not have.
# drop_tensors: [query_norm, key_norm]
# New beginnings of its tensors' names: the longest old one that fits counts.
# rename_tensors: {self_attn.: attn., mlp.gate_proj: mlp.w1}
)";

/// Values as one line of YAML in flow style.
class FlowText {
 public:
  static std::string of(bool value) { return value ? "true" : "false"; }
  static std::string of(int64_t value) { return std::to_string(value); }
  static std::string of(std::string_view value) {
    // In flow style these end a plain text.
    return value.find_first_of(",[]{}") == std::string_view::npos ? yaml_string(value)
                                                                  : Json(value).dump();
  }
  static std::string of(const std::string& value) { return of(std::string_view(value)); }
  static std::string of(const JsonObject& json) { return parse_json(json.text).dump(); }
  static std::string of(JsonValue json) { return parse_json(json.text).dump(); }
  template <HasWords Value>
  static std::string of(const Value& value) {
    return words<Value>().word_of(value);
  }
  static std::string of(const ConditionList& list) {
    std::vector<std::string> names;
    for (const Condition& condition : list.conditions)
      if (condition.wanted == list.wanted)
        names.push_back(condition.layer ? words<bool LayerConfig::*>().word_of(condition.layer)
                                        : words<bool ModelConfig::*>().word_of(condition.model));
    return "[" + join(names, ", ") + "]";
  }
  static std::string of(ResolveHook hook) {
    for (const Architecture& family : architectures())
      if (hook && family.resolve == hook) return std::string(family.name);
    return "none";
  }
  template <class Item>
  static std::string of(const std::vector<Item>& list) {
    return "[" + join(list, ", ", [](auto item) { return of(item); }) + "]";
  }
  /// A record without the fields that have their default.
  template <IsRecord Record>
  static std::string of(Record record) {
    Record usual{};
    std::vector<std::string> defaults, fields;
    visit_fields(usual, [&](std::string_view, auto&& value, std::string_view) {
      defaults.push_back(default_of(value));
    });
    size_t i = 0;
    visit_fields(record, [&](std::string_view name, auto&& value, std::string_view comment) {
      std::string text = of(value);
      if (comment == kRequired || text != defaults[i])
        fields.push_back(std::string(name) + ": " + text);
      ++i;
    });
    return "{" + join(fields, ", ") + "}";
  }

 private:
  /// Fields without a value, which are required, have no word.
  static std::string default_of(const auto& value) {
    if constexpr (requires { value == nullptr; })
      return "";
    else if constexpr (requires { value.text; })
      return "";
    else
      return of(value);
  }
};

/// "a, b, c", of a field that has choices; else empty.
template <class Value>
std::string choices_of(const Value&) {
  if constexpr (HasWords<Value>) return join(words<Value>().names(), ", ");
  return "";
}
std::string choices_of(const bool&) {
  return "true, false";
}
std::string choices_of(const ResolveHook&) {
  return "none, " + join(hook_names(), ", ");
}

std::string comment_lines(const std::string& text) {
  std::string lines, line = "#";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (line.size() + 1 + end - at > kWidth) {
      lines += line + "\n";
      line = "#";
    }
    line += " " + text.substr(at, end - at);
    at = end + 1;
  }
  return lines + line + "\n";
}

/// "key: value", or the items of a list of records, one a line.
template <class Value>
std::string field_lines(std::string_view name, Value& value, const std::string& mark) {
  return mark + std::string(name) + ": " + FlowText::of(value) + "\n";
}
template <IsRecord Record>
std::string field_lines(std::string_view name, std::vector<Record>& list, const std::string& mark) {
  if (list.empty()) return mark + std::string(name) + ": []\n";
  std::string lines = mark + std::string(name) + ":\n";
  for (Record& item : list) lines += mark + "  - " + FlowText::of(item) + "\n";
  return lines;
}

std::string vocabulary() {
  std::vector<std::string> switches = words<bool ModelConfig::*>().names();
  const std::vector<std::string> of_layers = words<bool LayerConfig::*>().names();
  return comment_lines("Words of the fields below.") +
         comment_lines("switches, sets: " + join(switches, ", ")) +
         comment_lines("numbers, sets: " + join(words<float ModelConfig::*>().names(), ", ") +
                       "; reading: " + join(words<NumberKey::Reading>().names(), ", ")) +
         comment_lines("tensors, role: " + join(words<Role>().names(), ", ")) +
         comment_lines("tensors, shape and repeat: " + join(words<Dim>().names(), ", ")) +
         comment_lines("tensors, when and unless: the switches, and of a layer: " +
                       join(of_layers, ", ")) +
         comment_lines("tensors, layout: " + join(words<Layout>().names(), ", ") +
                       "; {} in a name stands for each number of repeat; split: the tensors of "
                       "one expert that a tensor of all experts holds");
}

std::string head(const std::string& first_line) {
  return comment_lines(first_line) +
         comment_lines(
             "A family of models for --family-file (docs/families.md). Lines that are commented "
             "out show the default.") +
         vocabulary() + "\n";
}

std::string fields_of(Architecture family, bool are_all_comments) {
  Architecture usual;
  std::vector<std::string> defaults;
  visit_fields(usual, [&](std::string_view name, auto&& value, std::string_view) {
    defaults.push_back(field_lines(name, value, ""));
  });
  std::string text;
  size_t i = 0;
  visit_fields(family, [&](std::string_view name, auto&& value, std::string_view comment) {
    if (are_all_comments && name == "name") return void(++i);
    const std::string choices = choices_of(value);
    text += comment_lines(std::string(comment) + (choices.empty() ? "" : ": " + choices));
    const bool is_usual = field_lines(name, value, "") == defaults[i++];
    text += field_lines(name, value, is_usual || are_all_comments ? "# " : "");
  });
  return text;
}

}  // namespace

std::string family_template(const Architecture& family) {
  return head("The built-in family " + std::string(family.name) + ".") + fields_of(family, false);
}

std::string empty_family_template() {
  return head("Llama under another name: change what differs.") + std::string(kStart) +
         fields_of(*choose_family("llama").architecture, true);
}

}  // namespace kvcal
