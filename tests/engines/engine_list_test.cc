#include "engines/engine_verdicts.h"

#include <algorithm>

#include "engines/engine_rules.h"
#include "family/architecture.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;

TEST_CASE("engine list: all engines, with the model types that were run") {
  const Json engines = engines_json("");
  const std::string text = engines_text("");
  REQUIRE(engines.size() == engine_rules().names().size());
  CHECK(std::ranges::count(text, '\n') == std::ssize(engines) + 1);
  for (const Json& engine : engines) {
    const std::string row = engine.at("name");
    CHECK(contains(text, row + "  "));
    CHECK_FALSE(engine.at("versions").empty());
  }
}

TEST_CASE("engine list: what engines read for a model type, a line a format") {
  const auto verdicts = engine_verdicts("qwen3");
  const Json engines = engines_json("qwen3");
  const std::string text = engines_text("qwen3");
  REQUIRE(engines.size() == verdicts.size());
  CHECK(std::ranges::count(text, '\n') == std::ssize(verdicts));
  for (size_t i = 0; i < verdicts.size(); ++i) {
    CHECK(engines[i].at("format") == verdicts[i].format);
    CHECK(engines[i].at("reads") == name_of(verdicts[i].reads));
    CHECK(contains(text, ": " + std::string(verdicts[i].note) + "\n"));
  }
}

TEST_CASE("engine list: the table has a row for each model type, and a cell for each engine") {
  const std::string table = engines_markdown();
  const size_t end = table.find('\n');
  const auto bars =
      std::count(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(end), '|');
  for (const Architecture& architecture : architectures())
    for (const std::string_view type : architecture.model_types) {
      const std::string start = "\n| `" + std::string(type) + "` |";
      CAPTURE(start);
      const size_t at = table.find(start);
      REQUIRE(at != std::string::npos);
      const std::string row = table.substr(at + 1, table.find('\n', at + 1) - at - 1);
      CHECK(std::ranges::count(row, '|') == bars);
      CHECK_FALSE(contains(row, "|  |"));
    }
}
