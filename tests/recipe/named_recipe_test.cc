#include "recipe/presets.h"

#include <filesystem>

#include "core/file.h"
#include "recipe/recipe.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;

TEST_CASE("named_recipe: every file of recipes/ is a name, with the file's text") {
  int num_files = 0;
  for (const auto& entry : fs::directory_iterator(test::source_folder() / "recipes")) {
    if (entry.path().extension() != ".yaml") continue;
    ++num_files;
    INFO(entry.path());
    CHECK(named_recipe(entry.path().stem()) == read_text(entry.path()));
  }
  CHECK(builtin_recipes().size() == static_cast<size_t>(num_files));
}

TEST_CASE("named_recipe: a preset makes a recipe for all Linears but lm_head") {
  const Recipe recipe = read_recipe("FP8_DYNAMIC");
  REQUIRE(recipe.modifiers.size() == 1);
  CHECK(recipe.modifiers[0].scheme == "FP8_DYNAMIC");
  CHECK(recipe.modifiers[0].targets == std::vector<std::string>{"Linear"});
  CHECK(recipe.modifiers[0].ignore == std::vector<std::string>{"lm_head"});
  REQUIRE(recipe.modifiers[0].config_groups.size() == 1);
  CHECK(recipe.modifiers[0].config_groups[0].second.weights->strategy == Strategy::kChannel);
  CHECK(test::contains(test::message_of([] { read_recipe("fp8_kv_tensr"); }),
                       "'fp8_kv_tensr' is neither a file nor the name of a recipe (did you mean "
                       "'fp8_kv_tensor'?); names are fp8_attention, "));
}

TEST_CASE("named_recipe: a file that is there wins, and a path is no name") {
  const test::ScratchFolder folder;
  test::write_file(folder / "fp8_kv_tensor", "a file");
  CHECK_FALSE(named_recipe(folder / "fp8_kv_tensor"));
  CHECK_FALSE(named_recipe("recipes/fp8_kv_tensor"));
  CHECK_FALSE(named_recipe("fp8_kv_tensor.yaml"));
  CHECK(recipe_seen_from(folder.path(), "fp8_kv_tensor") == folder / "fp8_kv_tensor");
  CHECK(recipe_seen_from(folder.path(), "fp8_kv_head") == "fp8_kv_head");
  CHECK(recipe_seen_from(folder.path(), "missing.yaml") == folder / "missing.yaml");
}
