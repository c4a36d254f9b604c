#pragma once

#include <functional>

#include "ranks/rank_session.h"
#include "run/calibrate_request.h"
#include "run/calibration_result.h"

namespace kvcal {

/// Calibrates the model by its recipe and writes the output, complete or not at all; with several
/// ranks, rank 0 writes. on_written gets the result on the rank that has written, before the run's
/// state is removed, so an error in it keeps the state. Throws Error, and Interrupted where the
/// user asks to stop; both say how to resume where that is possible. Collective.
void calibrate_checkpoint(const CalibrateRequest& request, RankSession& session,
                          Diagnostics& diagnostics,
                          const std::function<void(const CalibrationResult&)>& on_written);

}  // namespace kvcal
