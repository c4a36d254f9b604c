#include "recipe/named_recipe.h"

#include "core/folder.h"
#include "recipe/presets.h"

namespace kvcal {

std::optional<std::string> named_recipe(const std::filesystem::path& given) {
  if (given.has_parent_path() || is_there(given)) return std::nullopt;
  const std::string name = given.string();
  for (const EmbeddedText& file : builtin_recipes())
    if (file.stem() == name) return std::string(file.text);
  if (!is_preset(name)) return std::nullopt;
  return "default_stage:\n"
         "  default_modifiers:\n"
         "    QuantizationModifier:\n"
         "      targets: [Linear]\n"
         "      scheme: " +
         name +
         "\n"
         "      ignore: [lm_head]\n";
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const EmbeddedText& file : builtin_recipes()) names.emplace_back(file.stem());
  for (std::string& name : preset_names()) names.push_back(std::move(name));
  return names;
}

std::filesystem::path recipe_seen_from(const std::filesystem::path& folder,
                                       const std::string& given) {
  const std::filesystem::path path = (folder / given).lexically_normal();
  return !is_there(path) && named_recipe(given) ? std::filesystem::path(given) : path;
}

}  // namespace kvcal
