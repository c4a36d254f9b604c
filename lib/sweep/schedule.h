#pragma once

#include <cstdint>
#include <vector>

#include "sweep/plan.h"

namespace kvcal {

/// A piece of work that runs on its own and leaves its result in files.
struct SweepTask {
  enum class Kind { kObserve, kCalibrate, kEvaluate, kAnswer };
  Kind kind = Kind::kEvaluate;
  /// Into the plan's observations, calibrations or cells: one, or of an evaluation several cells
  /// that run the same weights and share the forward pass of the 16-bit reference.
  std::vector<size_t> parts;
  std::vector<size_t> needs;  ///< tasks, into the schedule, that come before
};

/// What there is already, of each part of the plan.
struct SweepProgress {
  std::vector<bool> observations, calibrations;
  std::vector<bool> cells;    ///< scored
  std::vector<bool> answers;  ///< of each cell; true where the sweep does not ask
};
SweepProgress nothing_done(const SweepFile& sweep, const SweepPlan& plan);

/// What is left to do for the cells that are not done, in an order in which everything needed comes
/// before, and a group of cells as soon as it can: a kill loses little; answers, which take
/// longest, come last. group_size: cells of an evaluation at most, 1 or more.
std::vector<SweepTask> schedule(const SweepPlan& plan, const SweepProgress& done,
                                size_t group_size);

}  // namespace kvcal
