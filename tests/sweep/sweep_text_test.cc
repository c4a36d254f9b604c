#include "sweep/sweep_run.h"

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

Sweep sweep_of(size_t num_cells) {
  Sweep sweep;
  sweep.file.name = "grid";
  sweep.plan.cells.resize(num_cells);
  sweep.plan.num_combinations = static_cast<int64_t>(num_cells);
  return sweep;
}

report::SweepCell cell(const std::string& id, std::optional<double> kl) {
  report::SweepCell one{.id = id, .status = kl ? "done" : "failed", .error = ""};
  one.metrics.set("kl_mean", kl);
  one.metrics.set("perplexity", 9.0);
  return one;
}

}  // namespace

TEST_CASE("sweep text: cells that are there are counted") {
  RemainingWork remaining;
  CHECK(reuse_text(remaining).empty());
  remaining.num_there = 2;
  remaining.num_wanted = 3;
  CHECK(reuse_text(remaining) ==
        "already there: 2 of 3 cells, of the same models, texts and settings\n");
}

TEST_CASE("sweep text: the remaining work lists kinds of tasks that are left, time and memory") {
  Sweep sweep = sweep_of(2);
  RemainingWork remaining;
  CHECK(remaining_text(sweep, remaining) == "grid: 2 cells\nnothing is left to do\n");
  sweep.plan.num_combinations = 5;
  sweep.plan.meaningless = {{"they need text", 2}};
  remaining.num_tasks = 3;
  remaining.jobs = 2;
  remaining.seconds = 90;
  remaining.memory_bytes = 2e9;
  remaining.shares[0] = {.num_tasks = 3, .tokens = 1000, .seconds = 180};
  const std::string text = remaining_text(sweep, remaining);
  CHECK(text.starts_with("grid: 2 cells of 5 combinations; "));
  CHECK(test::contains(text, "left out: 2 combinations, they need text\n"));
  CHECK(
      text.ends_with("     to do  tasks  tokens   time\n"
                     "statistics      3    1000  3 min\n"
                     "about 90 s, 2 at a time, and 2.0 GB of memory\n"));
}

TEST_CASE("sweep text: columns that are equal in all cells are left out, failed cells have none") {
  std::vector<report::SweepCell> cells{cell("a", 0.5), cell("b", 0.25), cell("c", {})};
  cells[1].is_pareto = true;
  CHECK(cells_text(cells, 40) ==
        "cell  kl_mean  front  status\n"
        "   a      0.5           done\n"
        "   b     0.25      *    done\n"
        "   c                  failed\n");
  CHECK(test::contains(cells_text({cell("a", 0.5)}, 40), "perplexity"));
}

TEST_CASE("sweep text: of too many cells their number and the front are listed") {
  std::vector<report::SweepCell> cells{cell("a", 0.5), cell("b", 0.25), cell("c", {})};
  CHECK(cells_text(cells, 2) == "3 cells: 2 done, 1 failed (--verbose lists them)\n");
  cells[1].is_pareto = true;
  CHECK(cells_text(cells, 2) ==
        "3 cells: 2 done, 1 failed; those of the front (--verbose lists all):\n"
        "cell  kl_mean  front  status\n"
        "   b     0.25      *    done\n");
}
