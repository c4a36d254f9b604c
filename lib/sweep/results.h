#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/registry.h"
#include "report/sweep_report.h"
#include "sweep/plan.h"
#include "sweep/schedule.h"
#include "sweep/sweep_folder.h"

namespace kvcal {

/// The numbers that a cell's result may have, by their keys in results.json and in its order:
/// whether less is better. All are of report::all_metrics().
extern const Registry<bool> kCellMetrics;

/// The state of a cell.
struct CellOutcome {
  enum class Status { kPending, kDone, kFailed };
  Status status = Status::kPending;
  std::string error = {};  ///< of a failed one
  Json result = {};        ///< of one that is done: metrics by name; those it lacks are null
};

/// A point of a Pareto picture, and the standard error of its y; 0: none is known.
struct ParetoPoint {
  double x = 0.0, y = 0.0;
  double error = 0.0;
};
/// Tells for each point whether no other is as good in both and better in one. Less is better; a
/// difference of y within the standard error of the difference is none.
std::vector<bool> pareto_front(std::span<const ParetoPoint> points);

/// results.json (docs/sweep.md). outcomes: of each cell.
Json results_json(const Sweep& sweep, std::span<const CellOutcome> outcomes);
/// The same as the values of a page.
report::SweepReport results_report(const Sweep& sweep, std::span<const CellOutcome> outcomes);

/// The cells of results.json as CSV (RFC 4180): a line of names, then one a cell; null is empty.
std::string to_csv(const Json& results);

/// Whether the folder holds the result of every part of the task.
bool is_done(const SweepTask& task, const Sweep& sweep, const SweepFolder& folder);

/// Which parts of the plan have their result in the folder.
SweepProgress progress_of(const Sweep& sweep, const SweepFolder& folder);

/// The result of each cell, or why it has none.
std::vector<CellOutcome> outcomes_of(const Sweep& sweep, const SweepFolder& folder);

/// The table of a whole sweep.
struct SweepResults {
  Json json;  ///< results.json
  report::SweepReport report;
};
/// Writes results.json and results.csv.
SweepResults write_results(const Sweep& sweep, const SweepFolder& folder);

}  // namespace kvcal
