#include <filesystem>
#include <sstream>
#include <string>

#include "core/file.h"
#include "recipe/recipe.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

TEST_CASE(
    "recipes: every file of recipes/ is taken and opens with three lines of comment, and is in the "
    "table") {
  const std::string readme = read_text(test::source_folder() / "recipes" / "README.md");
  int num_recipes = 0;
  for (const auto& entry : fs::directory_iterator(test::source_folder() / "recipes")) {
    if (entry.path().extension() != ".yaml") continue;
    ++num_recipes;
    INFO(entry.path().filename().string());
    const Recipe recipe = read_recipe(entry.path());
    CHECK(recipe.source == read_text(entry.path()));
    REQUIRE(recipe.modifiers.size() == 1);
    const Modifier& modifier = recipe.modifiers[0];
    CHECK((modifier.kv_cache_scheme || !modifier.config_groups.empty()));
    CHECK(readme.find("[" + entry.path().filename().string() + "](") != std::string::npos);
    std::istringstream lines(recipe.source);
    for (int i = 0; i < 4; ++i) {
      std::string line;
      std::getline(lines, line);
      CHECK(line.starts_with("# ") == (i < 3));
    }
  }
  CHECK(num_recipes == 21);
}

TEST_CASE("recipes: what those for the KV cache alone ask for") {
  const fs::path folder = test::source_folder() / "recipes";
  const Recipe tensor = read_recipe(folder / "fp8_kv_tensor.yaml");
  CHECK(tensor.modifiers[0].kv_cache_scheme->strategy == Strategy::kTensor);
  CHECK(tensor.modifiers[0].kv_cache_scheme->observer == "static_minmax");
  const Recipe head = read_recipe(folder / "fp8_kv_head.yaml");
  CHECK(head.modifiers[0].kv_cache_scheme->strategy == Strategy::kAttnHead);
  CHECK(head.modifiers[0].kv_cache_scheme->observer == "static_minmax");
  const Recipe minmax = read_recipe(folder / "fp8_kv_minmax.yaml");
  CHECK(minmax.modifiers[0].kv_cache_scheme->strategy == Strategy::kTensor);
  CHECK(minmax.modifiers[0].kv_cache_scheme->observer == "minmax");
  CHECK(minmax.modifiers[0].kv_cache_scheme->observer_kwargs["averaging_constant"] == 0.01);
  const char* observers[] = {"mse", "percentile", "entropy", "attention_mse"};
  for (const char* observer : observers) {
    const Recipe recipe = read_recipe(folder / ("fp8_kv_" + std::string(observer) + ".yaml"));
    CHECK(recipe.modifiers[0].kv_cache_scheme->observer == observer);
    CHECK(recipe.modifiers[0].config_groups.empty());
  }
}
