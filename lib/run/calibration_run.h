#pragma once

#include <map>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "calib/stable_calibration.h"
#include "datasets/dataset.h"
#include "forward/layerwise.h"
#include "ranks/exchanged_layers.h"
#include "ranks/rank_session.h"
#include "ranks/weights_mode.h"
#include "run/subject.h"
#include "state/resumable_forward.h"
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
Calibration calibrate_samples(const PlannedModel& subject, const CalibrationRun& run,
                              const CalibrationOptions& options, Statistics* kept,
                              Diagnostics& diagnostics);

/// measure with as many samples as the rule needs.
StableCalibration calibrate_samples_until_stable(const PlannedModel& subject,
                                                 const CalibrationRun& run,
                                                 const CalibrationOptions& options,
                                                 const StopRule& rule, Statistics* kept,
                                                 Diagnostics& diagnostics);

/// Hashes of the weights of a run whose state is kept, each made once. Those of layers that a pass
/// packs are made by the thread that packs them, just before. Borrows the weights.
class RunHashes : public WeightHashes {
 public:
  explicit RunHashes(const Weights& weights) : weights_(weights), local_(weights) {}

  /// A pass over these samples begins.
  void begin(std::span<const Sample> samples);
  /// Source of layers for a pass of this process alone.
  LayerBytes* local() { return &local_; }
  /// The source of layers of a pass with ranks, which lives as long as the pass; null: this rank
  /// packs none.
  void take_packed(const RankLayerBytes* packed) { packed_ = packed; }

  uint64_t of_model() override { return of_model_; }
  uint64_t packed(int64_t layer) override;
  uint64_t stored(int64_t layer) override;

 private:
  const Weights& weights_;
  LocalLayers local_;
  const RankLayerBytes* packed_ = &local_;
  uint64_t of_model_ = 0;
  std::map<int64_t, uint64_t> stored_;
};

}  // namespace kvcal
