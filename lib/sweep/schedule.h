#pragma once

#include <vector>

#include "sweep/sweep_task.h"

namespace kvcal {

/// Which parts of the plan are done already.
struct SweepProgress {
  std::vector<bool> observations, calibrations;
  std::vector<bool> cells;    ///< scored
  std::vector<bool> answers;  ///< one a cell; true where the sweep asks no questions
};
SweepProgress nothing_done(const SweepFile& sweep, const SweepPlan& plan);

/// The tasks that are left for the cells that are not done. Every task comes after those it needs,
/// and a group of cells as early as possible, so that a kill loses little; answers, which take
/// longest, come last. group_size: the most cells of one evaluation, 1 or more.
std::vector<SweepTask> schedule(const SweepPlan& plan, const SweepProgress& done,
                                size_t group_size);

}  // namespace kvcal
