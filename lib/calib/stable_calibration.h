#pragma once

#include <functional>
#include <memory>

#include "calib/calibrator.h"
#include "quant/stop_rule.h"

namespace kvcal {

/// Makes the forward pass of some of the samples, which reports to diagnostics.
using MakeForward = std::function<std::unique_ptr<LayerForward>(std::span<const Sample> samples,
                                                                Diagnostics& diagnostics)>;

struct StableCalibration {
  Calibration calibration;
  StopOutcome stop;
};

/// Calibrates with as many of the samples as the rule asks for: exact passes over a window of them
/// at a time, until no scale of the plan, derived from all that was seen, has moved by more than
/// the rule's ratio, or none are left. The calibration is that of calibrate over the first
/// stop.num_samples samples, to the bit: made from what the passes saw where that is all it needs
/// (needs_one_pass), else by calibrate. A line warns where the scales did not settle. plan: one
/// that needs data. Throws Error as calibrate.
StableCalibration calibrate_until_stable(const MakeForward& make_forward, const ModelConfig& config,
                                         const QuantPlan& plan, std::span<const Sample> samples,
                                         const CalibrationOptions& options, const StopRule& rule,
                                         Statistics* kept, Diagnostics& diagnostics);

}  // namespace kvcal
