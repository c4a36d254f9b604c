#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "report/sweep_report.h"
#include "sweep/results.h"
#include "sweep/task_runner.h"

namespace kvcal {

/// The work that is left of a sweep.
struct RemainingWork {
  /// The tasks of one kind, which is the index.
  struct Share {
    size_t num_tasks = 0;
    int64_t tokens = 0;
    double seconds = 0.0;
  };
  std::array<Share, std::size(kTaskKinds)> shares;
  size_t num_wanted = 0, num_there = 0;  ///< requested cells; those that have results
  size_t num_tasks = 0, jobs = 1;
  double seconds = 0.0, memory_bytes = 0.0;  ///< of jobs tasks at a time
  double busy_seconds = 0.0;                 ///< while other programs run as now
};
/// The work that is left, with the plan's counts and cells, as `sweep --dry-run --json` prints it.
Json to_json(const Sweep& sweep, const RemainingWork& remaining);

class SweepEvents : public TaskEvents {
 public:
  /// Called before the first task.
  virtual void planned(const Sweep& sweep, const RemainingWork& remaining) = 0;
};

struct SweepResult {
  std::optional<SweepResults> results = {};  ///< none of a run of some cells
  std::vector<std::string> failed;           ///< ids of requested cells
  size_t num_wanted = 0;                     ///< requested cells
};

/// A sweep's file, what it expands to, and the work that is left.
struct SweepPreview {
  Sweep sweep;
  RemainingWork remaining = {};
};
/// Estimates the work that is left, and writes nothing. settings.output may be empty or new.
SweepPreview preview_sweep(const SweepSettings& settings, Diagnostics& diagnostics);

/// Runs the sweep, or the cells that settings name; results that the output has already are kept.
/// Cells that fail are in the result. Throws Error, and Interrupted with all tasks ended.
SweepResult run_sweep(const SweepSettings& settings, SweepEvents& events, Diagnostics& diagnostics);

/// Makes results.json and results.csv of the results that the output has, and runs nothing.
SweepResult collect_sweep(const SweepSettings& settings, Diagnostics& diagnostics);

/// Does one task of a sweep, named as argument_of writes it, unless the output has its result. A
/// cell whose scales cannot be had leaves the reason in its cell_error, and the other cells go on.
/// Throws Error.
void run_task(const SweepSettings& settings, const std::string& task, Diagnostics& diagnostics);

// A sweep in words and tables, as lines for a terminal.

/// The number of cells that need not be done again; empty for none.
std::string reuse_text(const RemainingWork& remaining);
/// The plan's counts, and the work that is left.
std::string remaining_text(const Sweep& sweep, const RemainingWork& remaining);
/// A table of the cells with those measures that distinguish them; of more than most_rows cells,
/// their number and those of the front.
std::string cells_text(const std::vector<report::SweepCell>& cells, size_t most_rows);

}  // namespace kvcal
