// A recipe in YAML or JSON, its patterns on names of modules, and its saved form read again.
#include "recipe/recipe.h"

#include "support/fuzz.h"

using namespace kvcal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr std::string_view kNames[] = {
      "model.embed_tokens", "model.layers.0.self_attn", "model.layers.11.mlp.experts.7.gate_proj",
      "lm_head", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::accepts([&] {
    const Recipe recipe = parse_recipe(text);
    KVCAL_CHECK(!recipe.modifiers.empty());
    for (const Modifier& modifier : recipe.modifiers)
      for (const auto* places : {&modifier.target_places, &modifier.ignore_places})
        for (const auto& target : *places)
          for (const std::string_view name : kNames)
            fuzz::accepts([&] { matches_target(target.first, name, "Linear"); });
    const std::string saved = to_yaml(recipe);
    KVCAL_CHECK(to_yaml(parse_recipe(saved)) == saved);
  });
  static const fuzz::Folder folder;
  fuzz::accepts([&] { read_recipe(folder.write("recipe.json", text)); });
  fuzz::accepts([&] { read_recipe(folder.write("recipe.md", text)); });
  return 0;
}
