// A command is a call: values in, values out; notes, warnings and progress go through
// Diagnostics. A call combines devices, ranks and state and writes the output; it prints nothing
// and ends no process. The result goes to a function of the caller before the state is removed,
// so a run whose report cannot be written can still be resumed. Texts for a terminal are values,
// too: *_text.h turns a result into lines, where tests compare them; the program tells it how
// many rows a table may have and whether the terminal shows Unicode.
#pragma once

#include <functional>

#include "core/output.h"
#include "ranks/rank_session.h"
#include "run/calibrate_request.h"
#include "run/calibration_result.h"

namespace kvcal {

/// What the caller does on the rank that writes. An error in it keeps the run's state.
struct CalibrationSteps {
  /// The output is complete in folder, but not at its place; what this adds to outputs appears with
  /// it. Empty: nothing.
  std::function<void(const CalibrationResult&, const fs::path& folder, StagedOutputs& outputs)>
      staged = {};
  /// Everything is at its place.
  std::function<void(const CalibrationResult&)> written;
};

/// Calibrates the model by its recipe and writes the output, the statistics and what steps.staged
/// adds, all together or not at all; with several ranks, rank 0 writes. Throws Error, and
/// Interrupted where the user asks to stop; both say how to resume where that is possible.
/// Collective.
void calibrate_checkpoint(const CalibrateRequest& request, RankSession& session,
                          Diagnostics& diagnostics, const CalibrationSteps& steps);

}  // namespace kvcal
