#include "sweep/kept_results.h"

#include <algorithm>

#include "core/folder.h"
#include "export/statistics_file.h"

namespace kvcal {
namespace {

using Kind = SweepTask::Kind;

/// Those that cannot be read are made again.
bool has_statistics(const fs::path& file, const std::string& fingerprint) {
  if (!is_there(file)) return false;
  try {
    read_statistics(file, fingerprint);
    return true;
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

/// Whether the scales that the cell was measured with were edited since. Where they are absent,
/// another machine may have them.
bool has_edited_scales(const Cell& cell, const SweepPlan& plan, const SweepFolder& folder) {
  if (!cell.calibration) return false;
  const fs::path file = folder.calibration(plan.calibrations[*cell.calibration].fingerprint);
  return is_there(file) && !folder.read_piece(file);
}

bool is_made(Kind kind, size_t part, const Sweep& sweep, const SweepFolder& folder) {
  const std::string& fingerprint = fingerprint_of(kind, part, sweep.plan);
  switch (kind) {
    case Kind::kObserve:
      return has_statistics(folder.statistics(fingerprint), fingerprint);
    case Kind::kCalibrate:
      return folder.read_piece(folder.calibration(fingerprint)) &&
             (!sweep.plan.calibrations[part].makes_checkpoint ||
              is_there(folder.checkpoint(fingerprint)));
    case Kind::kAnswer:
      if (!sweep.file.gsm8k) return true;
      break;
    case Kind::kEvaluate:
      break;
  }
  return folder.result(fingerprint).has_value() &&
         !has_edited_scales(sweep.plan.cells[part], sweep.plan, folder);
}

/// Adds the result of one measurement of a cell.
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

bool is_done(const SweepTask& task, const Sweep& sweep, const SweepFolder& folder) {
  return std::ranges::all_of(task.parts,
                             [&](size_t part) { return is_made(task.kind, part, sweep, folder); });
}

SweepProgress progress_of(const Sweep& sweep, const SweepFolder& folder) {
  const auto all_of = [&](Kind kind) {
    std::vector<bool> there(num_parts(kind, sweep.plan));
    for (size_t part = 0; part < there.size(); ++part)
      there[part] = is_made(kind, part, sweep, folder);
    return there;
  };
  return {.observations = all_of(Kind::kObserve),
          .calibrations = all_of(Kind::kCalibrate),
          .cells = all_of(Kind::kEvaluate),
          .answers = all_of(Kind::kAnswer)};
}

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

SweepResults write_results(const Sweep& sweep, const SweepFolder& folder) {
  const std::vector<CellOutcome> outcomes = outcomes_of(sweep, folder);
  SweepResults results{results_json(sweep.file, sweep.plan, sweep.inputs, outcomes),
                       results_report(sweep.file, sweep.plan, sweep.inputs, outcomes)};
  folder.write(folder.results(), results.json);
  write_file_atomically(folder.csv(), to_csv(results.json), true);
  return results;
}

}  // namespace kvcal
