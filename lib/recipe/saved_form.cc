#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "recipe/recipe.h"
#include "recipe/yaml_text.h"

namespace kvcal {
namespace {

/// Lines "key: value", each level two spaces deeper.
class YamlLines {
 public:
  /// Writes a map one level deeper.
  template <class Body>
  void map(const std::string& key, Body&& body) {
    text_ += std::string(depth_ * 2, ' ') + yaml_string(key) + ":\n";
    ++depth_;
    body();
    --depth_;
  }
  void value(const std::string& key, const Json& value) {
    const std::string start = std::string(depth_ * 2, ' ') + yaml_string(key) + ":";
    text_ += start + yaml_flow(value, start.size(), depth_ * 2 + 2) + "\n";
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  size_t depth_ = 0;
};

void write_args(const std::string& key, const std::optional<QuantArgs>& args, YamlLines& lines) {
  if (!args) return lines.value(key, nullptr);
  const Json json = to_json(*args);
  lines.map(key, [&] {
    for (const char* name :
         {"num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic",
          "actorder", "scale_dtype", "zp_dtype", "observer", "observer_kwargs"})
      lines.value(name, json.at(name));
  });
}

void write_group(const std::string& name, const QuantScheme& scheme, YamlLines& lines) {
  lines.map(name, [&] {
    lines.value("targets", scheme.targets);
    write_args("weights", scheme.weights, lines);
    write_args("input_activations", scheme.input_activations, lines);
    lines.value("output_activations", nullptr);
    lines.value("format", scheme.format ? Json(name_of(*scheme.format)) : Json(nullptr));
  });
}

void write_config_groups(const Modifier& modifier, YamlLines& lines) {
  if (!modifier.has_config_groups) return;
  if (modifier.config_groups.empty()) return lines.value("config_groups", Json::object());
  lines.map("config_groups", [&] {
    for (const auto& [name, scheme] : modifier.config_groups) write_group(name, scheme, lines);
  });
}

void write_scheme(const Modifier& modifier, YamlLines& lines) {
  if (modifier.scheme) lines.value("scheme", *modifier.scheme);
  if (modifier.scheme_map.empty()) return;
  lines.map("scheme", [&] {
    for (const auto& [preset, targets] : modifier.scheme_map) lines.value(preset, targets);
  });
}

void write_observers(const Modifier& modifier, YamlLines& lines) {
  if (modifier.weight_observer) lines.value("weight_observer", *modifier.weight_observer);
  if (modifier.input_observer) lines.value("input_observer", *modifier.input_observer);
  if (modifier.output_observer) lines.value("output_observer", *modifier.output_observer);
  if (!modifier.observer.empty()) lines.value("observer", modifier.observer);
}

/// Writes the fields in llm-compressor's order, without null ones.
void write_modifier(const Modifier& modifier, YamlLines& lines) {
  // llm-compressor's default, which it writes out.
  const std::vector<std::string> linear{"Linear"};
  write_config_groups(modifier, lines);
  lines.value("targets", modifier.targets.empty() ? linear : modifier.targets);
  lines.value("ignore", modifier.ignore);
  write_scheme(modifier, lines);
  if (modifier.kv_cache_scheme) write_args("kv_cache_scheme", modifier.kv_cache_scheme, lines);
  write_observers(modifier, lines);
  lines.value("bypass_divisibility_checks", modifier.bypass_divisibility_checks);
  lines.value("requires_calibration_data", needs_data(modifier));
}

/// Names of one group for each modifier, in order: two modifiers in one group would have one key,
/// and llm-compressor keeps only the last.
std::vector<std::string> group_names(const Recipe& recipe) {
  std::vector<std::string> names;
  const auto is_taken = [&](const std::string& name) {
    const auto has_name = [&](const Modifier& modifier) { return modifier.group == name; };
    return std::ranges::find(names, name) != names.end() ||
           std::ranges::any_of(recipe.modifiers, has_name);
  };
  for (const Modifier& modifier : recipe.modifiers) {
    std::string name = modifier.group;
    const bool is_second = std::ranges::find(names, name) != names.end();
    for (int i = 1; is_second && is_taken(name); ++i)
      name = modifier.group + "_" + std::to_string(i);
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

std::string to_yaml(const Recipe& recipe) {
  KVCAL_CHECK(!recipe.modifiers.empty());
  const std::vector<std::string> groups = group_names(recipe);
  YamlLines lines;
  // llm-compressor saves the name of the last of several stages, with all modifiers below it.
  lines.map(recipe.modifiers.back().stage + "_stage", [&] {
    for (size_t i = 0; i < groups.size(); ++i)
      lines.map(groups[i] + "_modifiers", [&] {
        lines.map("QuantizationModifier", [&] { write_modifier(recipe.modifiers[i], lines); });
      });
  });
  return lines.take();
}

}  // namespace kvcal
