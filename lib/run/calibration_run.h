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
  /// Gets what this rank has of each forward pass and the bytes of layers that it read; null: is
  /// not asked for.
  RankWork* work = nullptr;
};

/// What goes through the model, and where. Backends and samples are borrowed.
struct CalibrationRun {
  std::vector<Backend*> backends;  ///< of one kind, at least one
  std::span<const Sample> samples;
  /// observation, process_bytes and process_can_take are set for each pass.
  LayerwiseOptions layerwise;
  int threads = 0;                    ///< of a host; 0: one a CPU
  const RankedRun* ranked = nullptr;  ///< null: this process has all samples
  RunState* state = nullptr;          ///< that keeps how far it is; null: nothing is kept
};

/// The forward pass over all samples and the scales made of it. kept: where statistics go (not
/// their origin); null: they are not kept. Throws Error.
Calibration measure(const CalibrationSubject& subject, const CalibrationRun& run,
                    const CalibrationOptions& options, Statistics* kept, Diagnostics& diagnostics);

/// The same with as many of the samples as the rule asks for.
StableCalibration measure_until_stable(const CalibrationSubject& subject, const CalibrationRun& run,
                                       const CalibrationOptions& options, const StopRule& rule,
                                       Statistics* kept, Diagnostics& diagnostics);

}  // namespace kvcal
