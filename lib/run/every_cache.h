#pragma once

#include <string>
#include <vector>

#include "quant/calibration.h"
#include "run/eval_variants.h"

namespace kvcal {

/// Calibrated E4M3FN scales; empty where there are none.
struct CalibratedScales {
  std::vector<LayerKvScales> layers;  ///< one a layer
  std::vector<LayerKvScales> heads;   ///< one a head
  std::string source;                 ///< "checkpoint", or the file or folder
};

/// Scales of a calibration by layer; and by head, where the plan is by layer those of the largest
/// magnitudes that it saw.
CalibratedScales calibrated_scales_of(const Calibration& calibration);

/// Every cache that engines offer for the model: FP8 with scale 1.0, and those without scales; with
/// calibrated scales, also FP8 by layer and by head, INT8 and NVFP4. Without those whose blocks do
/// not divide the model's heads.
std::vector<VariantSpec> every_cache(const ModelConfig& config, const CalibratedScales& calibrated);

/// The same with the scales of `cache`, or of the checkpoint where it has any. Throws Error where
/// cache names another one, or scales that cannot be read.
std::vector<VariantSpec> every_cache(const LoadedModel& model, const CacheOptions& cache,
                                     Diagnostics& diagnostics);

}  // namespace kvcal
