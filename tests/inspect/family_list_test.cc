#include "inspect/family_list.h"

#include "family/architecture.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;

TEST_CASE("family list: every family is in each form") {
  const Json json = families_json();
  const std::string text = families_text(), table = families_markdown();
  CHECK(json.at("families").size() == architectures().size());
  for (const Architecture& architecture : architectures()) {
    const std::string name(architecture.name);
    CAPTURE(name);
    CHECK(contains("\n" + text, "\n" + name + ": " + std::string(architecture.description)));
    CHECK(contains(table, "\n| " + name + " | `"));
  }
  CHECK(contains(text, "\nRefused:\n"));
  CHECK_FALSE(json.at("refused").empty());
  CHECK_FALSE(json.at("wrappers").empty());
}

TEST_CASE("family list: a model type runs, is a wrapper, is refused or is in no table") {
  const std::vector<std::string> types{"llama", "zamba2", "dance"};
  const Json json = model_types_json(types).at("types");
  REQUIRE(json.size() == 3);
  CHECK(json[0].at("support") == "runs");
  CHECK(json[1].at("support") == "refused");
  CHECK(json[2].at("support") == "unknown");
  CHECK(model_types_text({"llama", "dance"}) ==
        "llama: runs, as llama\ndance: unknown, in no table\n");
  CHECK(model_types_markdown({"llama"}) ==
        "| `model_type` | | |\n| --- | --- | --- |\n| `llama` | runs | as llama |\n");
}
