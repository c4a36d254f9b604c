#include "recipe/recipe.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/registry.h"
#include "core/text.h"
#include "quant/observer.h"
#include "recipe/presets.h"
#include "recipe/yaml.h"

namespace kvcal {
namespace {

constexpr size_t kMaxRecipeBytes = YamlLimits{}.max_bytes;

/// Parses strict JSON into a tree. YAML accepts JSON except tabs, which are only between tokens: a
/// space instead keeps places. YAML comes first, because its messages about repeated keys have
/// lines.
YamlNode parse_json_tree(const std::string& text) {
  std::string spaced = text;
  std::replace(spaced.begin(), spaced.end(), '\t', ' ');
  YamlNode tree = parse_yaml(spaced);
  parse_json(text, {.max_bytes = kMaxRecipeBytes});
  return tree;
}

bool is_fence(std::string_view line) {
  const size_t end = line.find_last_not_of(" \t\r");
  line = end == std::string_view::npos ? "" : line.substr(0, end + 1);
  return line == "---" || line == "+++";
}

/// Front matter of a Markdown file, with empty lines for the text before it, so that places stay
/// correct.
std::string front_matter(std::string_view text) {
  std::string content;
  bool is_open = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (is_fence(line)) {
      if (is_open) return content;
      is_open = true;
      content += '\n';
    } else if (is_open) {
      content.append(line).append("\n");
    } else if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      content += '\n';
    } else {
      break;
    }
  }
  fail(is_open ? "the front matter does not end, expected a line ---"
               : "found no front matter, expected a line --- before the recipe and one after it");
}

}  // namespace

bool needs_data(const Modifier& modifier) {
  const auto is_static = [](const auto& group) {
    return group.second.input_activations && !group.second.input_activations->dynamic;
  };
  return modifier.kv_cache_scheme || std::ranges::any_of(modifier.config_groups, is_static);
}

bool chooses_by_attention(const Recipe& recipe) {
  return std::ranges::any_of(recipe.modifiers, [](const Modifier& one) {
    return one.kv_cache_scheme && make_observer(*one.kv_cache_scheme)->judges_attention();
  });
}

Recipe parse_recipe(std::string_view text) {
  Recipe recipe = read_recipe_tree(parse_yaml(text));
  recipe.source = text;
  return recipe;
}

namespace {

/// The recipe that an unknown name means; where it is the start of several, the usual one.
std::string meant_recipe(const std::string& name) {
  std::vector<std::string> names = recipe_names();
  names.emplace(names.begin(), kDefaultRecipe);
  return did_you_mean(name, names);
}

std::string text_of_recipe(const std::filesystem::path& path) {
  if (auto text = named_recipe(path)) return *std::move(text);
  if (!path.has_parent_path() && !path.has_extension() && !is_there(path))
    fail("'", path.string(), "' is neither a file nor the name of a recipe",
         meant_recipe(path.string()), "; names are ", join(recipe_names(), ", "));
  return read_text(path, kMaxRecipeBytes);
}

}  // namespace

Recipe read_recipe(const std::filesystem::path& path) {
  std::string text = text_of_recipe(path);
  return in_context(path.string(), [&] {
    const std::string extension = normalised_name(path.extension().string());
    if (extension != ".json" && extension != ".md") return parse_recipe(text);
    Recipe recipe = read_recipe_tree(extension == ".json" ? parse_json_tree(text)
                                                          : parse_yaml(front_matter(text)));
    recipe.source = std::move(text);
    return recipe;
  });
}

namespace {

/// Args with their keys in compressed-tensors' order.
Json args_json(const std::optional<QuantArgs>& args) {
  if (!args) return nullptr;
  const Json known = to_json(*args);
  Json json;
  for (const std::string_view key : kQuantArgsKeys) json[std::string(key)] = known.at(key);
  return json;
}

/// The fields in llm-compressor's order, without null ones.
Json modifier_json(const Modifier& modifier) {
  Json json;
  if (modifier.has_config_groups) json["config_groups"] = Json::object();
  if (modifier.has_config_groups)
    for (const auto& [name, scheme] : modifier.config_groups)
      json["config_groups"][name] = {
          {"targets", scheme.targets},
          {"weights", args_json(scheme.weights)},
          {"input_activations", args_json(scheme.input_activations)},
          {"output_activations", nullptr},
          {"format", scheme.format ? Json(name_of(*scheme.format)) : Json(nullptr)}};
  // llm-compressor's default, which it writes out.
  json["targets"] =
      modifier.targets.empty() ? std::vector<std::string>{"Linear"} : modifier.targets;
  json["ignore"] = modifier.ignore;
  if (modifier.scheme) json["scheme"] = *modifier.scheme;
  for (const auto& [preset, targets] : modifier.scheme_map) json["scheme"][preset] = targets;
  if (modifier.kv_cache_scheme) json["kv_cache_scheme"] = args_json(modifier.kv_cache_scheme);
  if (modifier.weight_observer) json["weight_observer"] = *modifier.weight_observer;
  if (modifier.input_observer) json["input_observer"] = *modifier.input_observer;
  if (modifier.output_observer) json["output_observer"] = *modifier.output_observer;
  if (!modifier.observer.empty()) json["observer"] = modifier.observer;
  json["bypass_divisibility_checks"] = modifier.bypass_divisibility_checks;
  json["requires_calibration_data"] = needs_data(modifier);
  return json;
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
  const std::vector<std::string> names = group_names(recipe);
  Json groups;
  for (size_t i = 0; i < names.size(); ++i)
    groups[names[i] + "_modifiers"]["QuantizationModifier"] = modifier_json(recipe.modifiers[i]);
  // llm-compressor saves the name of the last of several stages, with all modifiers below it.
  return yaml_text({{recipe.modifiers.back().stage + "_stage", groups}});
}

}  // namespace kvcal
