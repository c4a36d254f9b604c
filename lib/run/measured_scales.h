#pragma once

#include <string>
#include <utility>
#include <vector>

#include "run/calibrate_request.h"
#include "run/calibration_result.h"
#include "run/eval_variants.h"

namespace kvcal {

/// Text that a measurement reads after a calibration.
struct MeasureOptions {
  int64_t num_sequences = 32;
  int64_t max_seq_length = 512;
  bool every_cache = false;  ///< also measures the other caches that engines offer
};

/// A cache that was measured.
struct MeasuredCache {
  CacheLabel label;
  Likelihood result;
};

/// Scales of a calibration, and scale 1.0, measured against the same weights with a cache of 16
/// bits; where the recipe quantizes weights, against the source.
struct MeasuredScales {
  size_t num_sequences = 0;
  bool is_held_out = false;  ///< no sequence was a sample of the calibration
  Likelihood calibrated, unit;
  double calibrated_clipped = 0, unit_clipped = 0;  ///< by the calibration's histograms
  PairedDifference gain = {};  ///< KL of scale 1.0 less KL of the scales, in nats a token
  std::vector<MeasuredCache> caches = {};  ///< with every_cache: all, the smallest KL first
};

/// What each of both costs.
CacheDamage calibrated_damage(const MeasuredScales& measured);
CacheDamage unit_damage(const MeasuredScales& measured);

/// The better scales: a difference counts from two standard errors on.
enum class BetterScales { kTooFewTokens, kNoDifference, kCalibrated, kUnit };
BetterScales better_of(const MeasuredScales& measured);

/// Runs the records of the data set that follow the calibration's samples, or the first ones where
/// none follow. result: of a calibration with an output. Throws Error.
MeasuredScales measure_scales(const CalibrateRequest& request, const CalibrationResult& result,
                              const MeasureOptions& options, Diagnostics& diagnostics);

/// Another way to serve the model with the request's cache.
struct OtherCache {
  std::string model;   ///< with these weights
  std::string scales;  ///< a folder, or "unit"
};
/// Measures it on the same text, against the request's model with a cache of 16 bits.
Likelihood measure_other(const CalibrateRequest& request, const CalibrationResult& result,
                         const MeasureOptions& options, const OtherCache& other,
                         Diagnostics& diagnostics);

/// The value of "measured" in a manifest.
Json to_json(const MeasuredScales& measured);
/// Models that measure_scales runs side by side, the reference included.
int num_models_measured(const MeasureOptions& options);
/// Pairs of a label and a text of one line, the verdicts first.
std::vector<std::pair<std::string, std::string>> measured_lines(const MeasuredScales& measured);

}  // namespace kvcal
