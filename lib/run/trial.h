#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/calibrate_checkpoint.h"
#include "run/calibration_preview.h"
#include "run/measured_scales.h"

namespace kvcal {

/// A short calibration and its measurement, to decide whether a model is served with an FP8 cache.
struct TrialRequest {
  TrialRequest() {
    calibration.samples.num_calibration_samples = 64;
    measure.every_cache = true;
  }

  /// output.output: where the checkpoint is kept; empty: nowhere. The data set's records are
  /// divided where they are too few for samples and sequences.
  /// With a KL budget, layers in 16 bits are proposed that keep it; the scales are those of all.
  CalibrateRequest calibration;
  MeasureOptions measure;
};

/// What was found.
struct Trial {
  CalibrationResult result;  ///< its folders are gone after the trial, unless an output was named
  MeasuredScales measured;
  std::optional<KlBudgetOutcome> budget = {};  ///< with a KL budget
};

/// What to do.
enum class TrialAdvice {
  kCalibrate,   ///< serve with calibrated scales
  kEither,      ///< scale 1.0 serves as well: the model itself, with an FP8 cache
  kOtherData,   ///< scale 1.0 was better: these samples are not like the text that is measured
  kMoreTokens,  ///< nothing can be told
};
TrialAdvice advice_of(const Trial& trial);

/// Where the trial's pieces go.
struct TrialSteps {
  std::function<void(const CalibrationPreview&)> estimated;  ///< before the work, for all of it
  std::function<void(const Trial&)> done;                    ///< while the scales' folder is there
};

/// Calibrates, into a temporary folder where no output is named, and measures. Throws Error as
/// calibrate_checkpoint and measure_scales do, and for a model without K and V to quantize.
void try_model(TrialRequest request, RankSession& session, Diagnostics& diagnostics,
               const TrialSteps& steps);

/// What --json prints.
Json to_json(const Trial& trial);
/// Pairs of a label and a text of one line.
std::vector<std::pair<std::string, std::string>> trial_lines(const Trial& trial);

}  // namespace kvcal
