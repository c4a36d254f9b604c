#pragma once

#include <functional>

#include "core/staged_output.h"
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
