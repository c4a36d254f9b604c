#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "calib/stable_calibration.h"
#include "forward/layerwise_options.h"
#include "ranks/rank_work.h"
#include "ranks/weights_mode.h"
#include "run/subject.h"
#include "state/run_state.h"

namespace kvcal {

/// Several ranks that divide the samples. Borrows.
struct RankedRun {
  Communicator* ranks = nullptr;
  WeightsMode mode = WeightsMode::kShared;
  /// Gets this rank's part of each forward pass and the bytes of layers that it read; null: not
  /// requested.
  RankWork* work = nullptr;
};

/// Input of a forward pass, and the devices that run it. Borrows backends and samples.
struct CalibrationRun {
  std::vector<Backend*> backends;  ///< of one kind, at least one
  std::span<const Sample> samples;
  /// observation, process_bytes and process_can_take are set for each pass.
  LayerwiseOptions layerwise;
  int threads = 0;                    ///< of a host; 0: one a CPU
  const RankedRun* ranked = nullptr;  ///< null: this process has all samples
  RunState* state = nullptr;          ///< records the progress; null: no state
};

/// Runs the forward pass over all samples and makes the scales. kept: receives the statistics
/// (without their origin), or null. Throws Error.
Calibration measure(const CalibrationSubject& subject, const CalibrationRun& run,
                    const CalibrationOptions& options, Statistics* kept, Diagnostics& diagnostics);

/// measure with as many samples as the rule needs.
StableCalibration measure_until_stable(const CalibrationSubject& subject, const CalibrationRun& run,
                                       const CalibrationOptions& options, const StopRule& rule,
                                       Statistics* kept, Diagnostics& diagnostics);

}  // namespace kvcal
