#include <filesystem>
#include <string>

#include "core/file.h"
#include "recipe/recipe.h"
#include "recipe/yaml_tree.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

const fs::path kSaved = fs::path(KVCAL_TESTS_DIR) / "fixtures" / "recipe" / "saved";

}  // namespace

// The expectations are llm-compressor's own files; tests/reference/recipes_llmcompressor.py makes
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
    const fs::path shipped = fs::path(KVCAL_SOURCE_DIR) / "recipes" / (name + ".yaml");
    const Recipe recipe = read_recipe(fs::exists(own_input) ? own_input : shipped);
    CHECK(to_yaml(recipe) == read_text(entry.path()));
    CHECK(to_yaml(parse_recipe(to_yaml(recipe))) == to_yaml(recipe));
  }
  CHECK(num_saved == 5);
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
