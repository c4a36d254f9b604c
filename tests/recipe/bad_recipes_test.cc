#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "core/file.h"
#include "recipe/recipe.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

namespace {

/// The message that reading the recipe ends with; empty when it is taken.
std::string message_of(const fs::path& path) {
  try {
    read_recipe(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

// tests/recipe/bad: each recipe has its message beside it, without the path in front. One that ends
// in
// "..." goes on in the words of a library, which may change.
TEST_CASE("bad recipes: each is refused with its message") {
  const fs::path folder = test::tests_folder() / "recipe" / "bad";
  std::vector<fs::path> recipes;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() != ".txt") recipes.push_back(entry.path());
  std::sort(recipes.begin(), recipes.end());
  REQUIRE(recipes.size() >= 220);
  for (const fs::path& recipe : recipes) {
    std::string expected = read_text(fs::path(recipe).replace_extension(".txt"));
    if (expected.ends_with('\n')) expected.pop_back();
    std::string found = message_of(recipe);
    if (expected.ends_with("...")) {
      expected.resize(expected.size() - 3);
      found.resize(std::min(found.size(), recipe.string().size() + 2 + expected.size()));
    }
    INFO(recipe.filename().string());
    CHECK(found == recipe.string() + ": " + expected);
  }
}

TEST_CASE("bad recipes: a file that is not there, or is too large") {
  const fs::path missing = test::tests_folder() / "recipe" / "no_such_recipe.yaml";
  CHECK(message_of(missing).find("no_such_recipe.yaml") != std::string::npos);
  CHECK(message_of(missing).find("No such file") != std::string::npos);
  CHECK_THROWS_AS(parse_recipe(std::string((size_t{1} << 20) + 1, ' ')), Error);
}
