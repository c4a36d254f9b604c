// A run that may stop early consists of rounds of the exact forward. The layer is the outer
// loop, so a calibration has no scale before its last layer is done. One window of samples runs
// through all layers, its observations are appended to those of earlier rounds, the plan's
// scales are derived from all of them and compared (ScaleHistory). Rounds give the bytes of one
// run. So with an exact forward and an observer that cannot clip they are the result; otherwise
// calibrate runs on the samples that were needed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "calib/calibrator.h"
#include "quant/calibration.h"
#include "quant/provenance.h"

namespace kvcal {

/// Makes the forward pass over some of the samples; it reports to diagnostics.
using MakeForward = std::function<std::unique_ptr<LayerForward>(std::span<const Sample> samples,
                                                                Diagnostics& diagnostics)>;

struct StableCalibration {
  Calibration calibration;
  StopOutcome stop;
};

/// Calibrates with as many samples as the rule needs: runs exact passes over one window of samples
/// at a time, until no scale of the plan, derived from all observations so far, has moved by more
/// than the rule's ratio, or until no sample is left. The result equals that of calibrate over the
/// first stop.num_samples samples, bit for bit: it is made from the observations where they suffice
/// (needs_one_pass), else by calibrate. Warns where the scales did not settle. plan: one that needs
/// data. Throws Error as calibrate does.
StableCalibration calibrate_until_stable(const MakeForward& make_forward, const ModelConfig& config,
                                         const QuantPlan& plan, std::span<const Sample> samples,
                                         const CalibrationOptions& options, const StopRule& rule,
                                         Statistics* kept, Diagnostics& diagnostics);

/// Movement of the scales while the number of samples grows.
class ScaleHistory {
 public:
  explicit ScaleHistory(const StopRule& rule) : rule_(rule) {}

  /// Adds the scales of the first num_samples samples, more than in the call before. All
  /// calibrations have the same plan; a static input without a scale has none yet.
  void add(int64_t num_samples, const Calibration& calibration);

  /// Largest move from the newest scales that are at least a window old to the current ones;
  /// nullopt: none are that old. A scale that is missing on one side counts as the largest move.
  std::optional<ScaleMove> largest_move() const;
  /// Whether the largest move stays within the rule's ratio.
  bool is_stable() const;

 private:
  struct PlacedScale {
    ScaleMove place;  ///< without num_samples and ratio
    std::optional<Scale> scale;
  };
  struct Snapshot {
    int64_t num_samples = 0;
    std::vector<PlacedScale> scales;
  };
  static std::vector<PlacedScale> scales_of(const Calibration& calibration);
  const Snapshot* window_before() const;

  StopRule rule_;
  std::vector<Snapshot> snapshots_;  ///< the newest, and those that later ones may be compared with
};

}  // namespace kvcal
