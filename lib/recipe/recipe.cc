#include "recipe/recipe.h"

#include "core/file.h"
#include "core/folder.h"
#include "core/join.h"
#include "core/json.h"
#include "core/registry.h"
#include "quant/observer.h"
#include "recipe/grammar.h"
#include "recipe/named_recipe.h"
#include "recipe/yaml_tree.h"

#include <algorithm>
#include <utility>

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

std::string text_of_recipe(const std::filesystem::path& path) {
  if (auto text = named_recipe(path)) return *std::move(text);
  if (!path.has_parent_path() && !path.has_extension() && !is_there(path))
    fail("'", path.string(), "' is neither a file nor the name of a recipe",
         did_you_mean(path.string(), recipe_names()), "; names are ", join(recipe_names(), ", "));
  return read_text(path, kMaxRecipeBytes);
}

}  // namespace

Recipe read_recipe(const std::filesystem::path& path) {
  std::string text = text_of_recipe(path);
  return in_context(path.string(), [&] {
    const std::string extension = normalised_name(path.extension().string());
    Recipe recipe = read_recipe_tree(extension == ".json" ? parse_json_tree(text)
                                     : extension == ".md" ? parse_yaml(front_matter(text))
                                                          : parse_yaml(text));
    recipe.source = std::move(text);
    return recipe;
  });
}

}  // namespace kvcal
