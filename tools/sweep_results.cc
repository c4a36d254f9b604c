#include "sweep_results.h"

namespace kvcal {
namespace {

/// Adds what one measurement knows of a cell.
void add_outcome(const SweepFolder& folder, const std::string& fingerprint, CellOutcome& outcome) {
  if (const auto done = folder.result(fingerprint)) {
    outcome.result.update(*done);
    return;
  }
  if (outcome.status == CellOutcome::Status::kFailed) return;
  const auto failed = folder.read_if_sound(folder.cell_error(fingerprint));
  outcome.status = failed ? CellOutcome::Status::kFailed : CellOutcome::Status::kPending;
  if (failed) outcome.error = failed->value("error", std::string());
}

}  // namespace

std::vector<CellOutcome> outcomes_of(const Sweep& sweep, const SweepFolder& folder) {
  std::vector<CellOutcome> outcomes;
  for (const Cell& cell : sweep.plan.cells) {
    CellOutcome& outcome =
        outcomes.emplace_back(CellOutcome{CellOutcome::Status::kDone, {}, Json::object()});
    add_outcome(folder, cell.fingerprint, outcome);
    if (sweep.file.gsm8k) add_outcome(folder, cell.answer_fingerprint, outcome);
  }
  return outcomes;
}

Json write_results(const Sweep& sweep, const SweepFolder& folder) {
  Json results = results_json(sweep.file, sweep.plan, sweep.inputs, outcomes_of(sweep, folder));
  folder.write(folder.results(), results);
  write_file_atomically(folder.csv(), to_csv(results), true);
  return results;
}

}  // namespace kvcal
