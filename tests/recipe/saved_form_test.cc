#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "recipe/recipe.h"
#include "recipe/yaml.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

namespace {

const fs::path kSaved = test::tests_folder() / "fixtures" / "recipe" / "saved";

/// All of a modifier but its place, as text.
std::string meaning_of(const Modifier& modifier) {
  Json groups = Json::array();
  for (const auto& [name, scheme] : modifier.config_groups)
    groups.push_back({name, to_json(scheme), scheme.format.has_value()});
  const std::optional<QuantArgs>& kv = modifier.kv_cache_scheme;
  const std::vector<std::string> linear{"Linear"};
  return dump_json(Json::array(
      {modifier.targets.empty() ? linear : modifier.targets, modifier.ignore,
       modifier.scheme.value_or(""), modifier.scheme_map, groups, modifier.has_config_groups,
       kv ? to_json(*kv) : Json(nullptr), modifier.weight_observer.value_or(""),
       modifier.input_observer.value_or(""), modifier.output_observer.value_or(""),
       modifier.observer, modifier.bypass_divisibility_checks, needs_data(modifier)}));
}

}  // namespace

// The expectations are llm-compressor's own files; reference/recipes_llmcompressor.py makes
// them.
TEST_CASE("saved form: the bytes llm-compressor saves for the same recipe") {
  int num_saved = 0;
  for (const auto& entry : fs::directory_iterator(kSaved)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(".out.yaml")) continue;
    ++num_saved;
    INFO(file);
    const std::string name = file.substr(0, file.size() - std::string(".out.yaml").size());
    const fs::path own_input = kSaved / (name + ".in.yaml");
    const fs::path shipped = test::source_folder() / "recipes" / (name + ".yaml");
    const Recipe recipe = read_recipe(fs::exists(own_input) ? own_input : shipped);
    CHECK(to_yaml(recipe) == read_text(entry.path()));
    CHECK(to_yaml(parse_recipe(to_yaml(recipe))) == to_yaml(recipe));
  }
  CHECK(num_saved == 25);
}

TEST_CASE("saved form: read back, it means the same") {
  std::vector<fs::path> files{kSaved / "groups.in.yaml", kSaved / "stages.in.yaml"};
  for (const auto& entry : fs::directory_iterator(test::source_folder() / "recipes"))
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  for (const fs::path& file : files) {
    INFO(file.filename().string());
    const Recipe recipe = read_recipe(file);
    const Recipe again = parse_recipe(to_yaml(recipe));
    REQUIRE(again.modifiers.size() == recipe.modifiers.size());
    for (size_t i = 0; i < recipe.modifiers.size(); ++i) {
      const Modifier &one = recipe.modifiers[i], &two = again.modifiers[i];
      CHECK(meaning_of(one) == meaning_of(two));
    }
  }
}

TEST_CASE("saved form: modifiers of one group are all kept, in their order") {
  const Recipe recipe = parse_recipe(
      "a_stage: {g_modifiers: {QuantizationModifier: {scheme: FP8}},\n"
      "          g_1_modifiers: {QuantizationModifier: {scheme: FP8_BLOCK, targets: [b]}}}\n"
      "b_stage: {g_modifiers: {QuantizationModifier: {scheme: FP8_DYNAMIC, targets: [c]}}}\n"
      "c_stage: {g_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float}}}}\n");
  const YamlNode root = parse_yaml(to_yaml(recipe));
  REQUIRE(root.entries.size() == 1);
  CHECK(root.entries[0].key.text == "c_stage");
  std::vector<std::string> groups;
  for (const YamlEntry& entry : root.entries[0].value.entries) groups.push_back(entry.key.text);
  CHECK(groups ==
        std::vector<std::string>{"g_modifiers", "g_1_modifiers", "g_2_modifiers", "g_3_modifiers"});
  const Recipe again = parse_recipe(to_yaml(recipe));
  REQUIRE(again.modifiers.size() == 4);
  for (size_t i = 0; i < 4; ++i)
    CHECK(meaning_of(again.modifiers[i]) == meaning_of(recipe.modifiers[i]));
}

TEST_CASE("saved form: empty groups, as old KV-only recipes have them") {
  const std::string start =
      "s_stage: {g_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float}, "
      "config_groups: ";
  CHECK(to_yaml(parse_recipe(start + "{}}}}")).find("      config_groups: {}\n") !=
        std::string::npos);
  CHECK(to_yaml(parse_recipe(start + "{g: {targets: []}}}}}"))
            .find("      config_groups:\n        g:\n          targets: []\n"
                  "          weights: null\n          input_activations: null\n"
                  "          output_activations: null\n          format: null\n") !=
        std::string::npos);
}

TEST_CASE("saved form: defaults are written out") {
  const std::string text = to_yaml(parse_recipe(
      "s_stage: {g_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float}}}}"));
  CHECK(text.starts_with(
      "s_stage:\n  g_modifiers:\n    QuantizationModifier:\n      targets: [Linear]\n"));
  CHECK(text.find("        strategy: tensor\n") != std::string::npos);
  CHECK(text.find("        observer: static_minmax\n") != std::string::npos);
}

TEST_CASE("saved form: strings come back whatever they hold") {
  Recipe recipe = parse_recipe(
      "s_stage: {g_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float}}}}");
  recipe.modifiers[0].ignore = {
      "it's",         "a b",         "true", "Null",   "12",    "1.5",       "a: b",
      "# no comment", "*star",       "&and", "[list]", "{map}", "tab\there", "line\nbreak",
      "\"double\"",   "back\\slash", "é",    "-",      "a,b"};
  const YamlNode root = parse_yaml(to_yaml(recipe));
  const YamlNode& modifier =
      *root.find("s_stage")->find("g_modifiers")->find("QuantizationModifier");
  const YamlNode& ignore = *modifier.find("ignore");
  REQUIRE(ignore.items.size() == recipe.modifiers[0].ignore.size());
  for (size_t i = 0; i < recipe.modifiers[0].ignore.size(); ++i) {
    CHECK(ignore.items[i].text == recipe.modifiers[0].ignore[i]);
    CHECK((ignore.items[i].is_quoted ||
           recipe.modifiers[0].ignore[i].find(' ') == std::string::npos));
  }
}
