#include "sweep/results.h"

#include "core/folder.h"
#include "export/statistics_file.h"
#include "support/catch.h"
#include "support/scratch_folder.h"
#include "sweep_fixture.h"

using namespace kvcal;
using kvcal::test::PlannedSweep;
using kvcal::test::ScratchFolder;
using kvcal::test::write_file;
using Status = CellOutcome::Status;

namespace {

/// A sweep of two recipes, one of which makes a checkpoint, with fingerprints of no real inputs.
Sweep some_sweep() {
  PlannedSweep all("{models: m1, recipes: [max, dynamic], kv_forward: exact, num_samples: 8}");
  Sweep sweep{std::move(all.sweep), std::move(all.plan), test::some_inputs()};
  add_fingerprints(sweep.file, sweep.inputs, sweep.plan);
  return sweep;
}

}  // namespace

TEST_CASE("kept results: a part is done when its files are there and can be understood") {
  const ScratchFolder scratch;
  SilentDiagnostics diagnostics;
  const SweepFolder folder(scratch / "out", SweepFolder::Use::kWhole, diagnostics);
  const Sweep sweep = some_sweep();
  const SweepPlan& plan = sweep.plan;
  REQUIRE(plan.calibrations.size() == 2);
  const auto done = [&] { return progress_of(sweep, folder); };
  CHECK(done().observations == std::vector<bool>{false});
  CHECK(done().answers == std::vector<bool>{true, true});  // no questions are asked
  const std::string& observation = plan.observations[0].fingerprint;
  write_file(folder.statistics(observation), "x");
  CHECK(done().observations == std::vector<bool>{false});  // no statistics
  write_statistics(folder.statistics(observation), {}, true, "another");
  CHECK(done().observations == std::vector<bool>{false});
  write_statistics(folder.statistics(observation), {}, true, observation);
  folder.write_piece(folder.calibration(plan.calibrations[0].fingerprint), Json::object());
  folder.write_piece(folder.calibration(plan.calibrations[1].fingerprint), Json::object());
  folder.write_piece(folder.cell(plan.cells[1].fingerprint), {{"result", {{"kl_mean", 1}}}});
  CHECK(done().observations == std::vector<bool>{true});
  CHECK(done().calibrations == std::vector<bool>{true, false});  // its checkpoint is not there
  CHECK(done().cells == std::vector<bool>{false, true});
  make_folders(folder.checkpoint(plan.calibrations[1].fingerprint));
  write_file(folder.calibration(plan.calibrations[0].fingerprint), "{");
  CHECK(done().calibrations == std::vector<bool>{false, true});
  using Kind = SweepTask::Kind;
  CHECK(is_done({.kind = Kind::kEvaluate, .parts = {1}, .needs = {}}, sweep, folder));
  CHECK_FALSE(is_done({.kind = Kind::kEvaluate, .parts = {1, 0}, .needs = {}}, sweep, folder));
  // Scales that were edited are made again, and what was measured with them is measured again.
  write_file(folder.calibration(plan.calibrations[*plan.cells[1].calibration].fingerprint), "{");
  CHECK(done().cells == std::vector<bool>{false, false});
  fs::remove(folder.calibration(plan.calibrations[*plan.cells[1].calibration].fingerprint));
  CHECK(done().cells == std::vector<bool>{false, true});
}

TEST_CASE("kept results: a cell is done, failed or pending, and the tables say so") {
  const ScratchFolder scratch;
  SilentDiagnostics diagnostics;
  const SweepFolder folder(scratch / "out", SweepFolder::Use::kWhole, diagnostics);
  const Sweep sweep = some_sweep();
  const auto& cells = sweep.plan.cells;
  folder.write(folder.cell_error(cells[0].fingerprint), {{"id", cells[0].id}, {"error", "why"}});
  folder.write_piece(folder.cell(cells[1].fingerprint), {{"result", {{"kl_mean", 0.5}}}});
  auto outcomes = outcomes_of(sweep, folder);
  CHECK(outcomes[0].status == Status::kFailed);
  CHECK(outcomes[0].error == "why");
  CHECK(outcomes[1].status == Status::kDone);
  const Json results = write_results(sweep, folder).json;
  CHECK(results["cells"][1]["kl_mean"] == 0.5);
  CHECK(*folder.read(folder.results()) == results);
  CHECK(read_text(folder.csv()) == to_csv(results));
  // A result that came later counts, whatever failed before.
  folder.write_piece(folder.cell(cells[0].fingerprint), {{"result", {{"kl_mean", 0.25}}}});
  fs::remove(folder.cell(cells[1].fingerprint));
  outcomes = outcomes_of(sweep, folder);
  CHECK(outcomes[0].status == Status::kDone);
  CHECK(outcomes[1].status == Status::kPending);
}
