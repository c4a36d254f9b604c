#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "support/catch.h"
#include "support/folders.h"
#include "sweep/plan.h"

using namespace kvcal;

namespace fs = std::filesystem;

TEST_CASE("sweeps: every file of the folder can be planned") {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(test::source_folder() / "sweeps")) {
    if (entry.path().extension() != ".yaml") continue;
    INFO(entry.path().string());
    const SweepFile sweep = read_sweep(entry.path());
    const std::vector<KvDType> dtypes(sweep.models.size(), KvDType::kFloat16);
    CHECK(expand(sweep, dtypes).cells.size() > 1);
    CHECK(sweep.name == entry.path().stem());
    CHECK(fs::exists(sweep.calibration->dataset));
    CHECK(fs::exists(sweep.evaluation.dataset));
    ++count;
  }
  CHECK(count >= 1);
}

TEST_CASE("sweeps: kv_observers compares what its comments say") {
  const SweepFile sweep = read_sweep(test::source_folder() / "sweeps/kv_observers.yaml");
  const SweepPlan plan = expand(sweep, std::vector{KvDType::kFloat16});
  CHECK(plan.cells.size() == 24);
  // Four observers, by tensor and by head, in both forward modes.
  const auto is_main = [](const Cell& cell) {
    return cell.recipe && cell.cache == KvDType::kFp8E4m3 && cell.num_samples == 64 && !cell.seed;
  };
  CHECK(std::ranges::count_if(plan.cells, is_main) == 16);
  CHECK(plan.observations.size() == 1);
  for (const SweepRecipe& one : sweep.recipes) {
    const auto& scheme = one.recipe.modifiers.at(0).kv_cache_scheme;
    REQUIRE(scheme);
    CHECK((resolved_strategy(*scheme) == Strategy::kAttnHead) == one.name.ends_with("_head"));
  }
}
