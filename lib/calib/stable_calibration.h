#pragma once

#include <functional>
#include <memory>

#include "calib/calibrator.h"
#include "quant/stop_rule.h"

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

}  // namespace kvcal
