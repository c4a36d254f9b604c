#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "sweep/plan.h"

namespace kvcal {

/// What is known of a cell.
struct CellOutcome {
  enum class Status { kPending, kDone, kFailed };
  Status status = Status::kPending;
  std::string error;  ///< of a failed one
  Json result;        ///< of one that is done: metrics by name; those it lacks are null
};

/// A point of a Pareto picture.
struct ParetoPoint {
  double x = 0.0, y = 0.0;
};
/// Of each point, whether no other is as good in both and better in one. Less is better.
std::vector<bool> pareto_front(std::span<const ParetoPoint> points);

/// results.json (docs/sweep.md). outcomes: of each cell. inputs name what it was made with.
Json results_json(const SweepFile& sweep, const SweepPlan& plan, const SweepInputs& inputs,
                  std::span<const CellOutcome> outcomes);

/// The cells of results.json as CSV (RFC 4180): a line of names, then one a cell; null is empty.
std::string to_csv(const Json& results);

}  // namespace kvcal
