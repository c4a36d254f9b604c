#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "run/calibrate_checkpoint.h"
#include "run/calibration_preview.h"
#include "run/scored_scales.h"

namespace kvcal {

/// A short calibration whose scales are measured, to decide whether a model is served with an FP8
/// cache: the defaults of its request.
CalibrateRequest trial_request();

struct Trial {
  CalibrationResult result;  ///< its folders are gone after the trial, unless an output was named
  ScoredScales measured;
  std::optional<KlBudgetOutcome> budget = {};  ///< with a KL budget
  /// Scales of K chosen by attention; nullopt: not tried.
  std::optional<Likelihood> attention = {};
  /// Scale 1.0 on weights that were rewritten for it; nullopt: not tried, or it gains nothing.
  std::optional<Likelihood> rewritten = {};
};

/// What to do.
enum class TrialAdvice : uint8_t {
  kUnit,        ///< serve the model itself, with scale 1.0: no scales are needed
  kCalibrate,   ///< serve with calibrated scales
  kWeigh,       ///< both cost noticeably: weigh the remedies
  kDoNotServe,  ///< neither is to be served
  kOtherData,   ///< 1.0 was fine and better, and clips: these samples are not like what is measured
  kMoreTokens,  ///< what was found is fine, but not enough to rely on
};

/// What advice is made of: the verdicts of both, and only then their difference.
struct TrialFindings {
  DamageVerdict unit, calibrated;
  BetterScales better = BetterScales::kNoDifference;
  bool unit_clips = false;  ///< 1.0 clips any value that the calibration saw
};
TrialFindings findings_of(const Trial& trial);
/// Never advises to serve what its verdict refutes: kUnit and kCalibrate only where that of their
/// scales is fine.
TrialAdvice advice_of(const TrialFindings& found);

/// The remedies for what was found. model: as given; output: a name for what is to be made.
std::vector<Remedy> remedies_of(const Trial& trial, const CalibrateRequest& request,
                                const std::string& model, const std::string& output);

/// Where the trial's pieces go.
struct TrialSteps {
  std::function<void(const CalibrationPreview&)> estimated;  ///< before the work, for all of it
  std::function<void(const Trial&)> done;                    ///< while the scales' folder is there
};

/// Calibrates, into a temporary folder where no output is named, and measures. The data set's
/// records are divided where they are too few for samples and sequences. With a KL budget, layers
/// in 16 bits are proposed that keep it; the scales are those of all. Where neither scales are
/// fine, the ways out are tried: layers in 16 bits, scales of K chosen by attention, and weights
/// that are rewritten in the folder for temporary files, where that has room for the model. Throws
/// Error as calibrate_checkpoint and score_scales do, and for a model without K and V to quantize.
void try_model(CalibrateRequest request, RankSession& session, Diagnostics& diagnostics,
               const TrialSteps& steps);

/// What --json prints.
Json to_json(const Trial& trial);
/// Pairs of a label and a text of one line, the advice first. is_whole: those too that no answer
/// needs.
LabelledLines trial_lines(const Trial& trial, bool is_whole);

}  // namespace kvcal
