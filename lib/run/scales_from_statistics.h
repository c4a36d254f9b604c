#pragma once

#include <string>
#include <vector>

#include "calib/summary/cache_loss.h"
#include "core/diagnostics.h"
#include "core/json.h"
#include "family/family_choice.h"
#include "recipe/presets.h"
#include "run/calibration_result.h"
#include "run/eval_variants.h"

namespace kvcal {

/// Request for the scales of a recipe from the statistics of a calibration.
struct ScalesRequest {
  std::string statistics;
  std::string recipe{kDefaultRecipe};  ///< a file or a name
  std::string model;  ///< model of the statistics, needed for an output; empty: nothing is written
  FamilyChoice family;    ///< of a model_type that is not known
  OutputOptions output;   ///< only with model
  double headroom = 1.0;  ///< of the scales of K and V (calib/derive.h)
  std::string version;    ///< of the program, for the manifest
};

/// Makes the scales without a forward pass, bit for bit those of a run with the same data, and
/// writes the output where a model is given, complete or not at all. Throws Error.
CalibrationResult scales_from_statistics(const ScalesRequest& request, Diagnostics& diagnostics);

/// A cache that engines offer, and what statistics say that it loses.
struct AdvisedCache {
  CacheLabel label;
  std::vector<LayerCacheLoss> layers;
  double loss = 0;  ///< expected_loss of the layers
};

/// Every cache that engines offer for the model, the least loss first. Throws Error where the
/// calibration has no statistics of K and V.
std::vector<AdvisedCache> advise_caches(const CalibrationResult& result);

/// Output of `kvcal scales --advise --json`: each cache with its shares, and those of each layer.
Json to_json(const std::vector<AdvisedCache>& caches);

/// Caches as statistics rank them: bytes a token, relative errors of K and V, shares of their
/// values that are clipped and that become zero; then the same of each layer, unless that table has
/// more than most_rows rows.
std::string advice_text(const std::vector<AdvisedCache>& caches, size_t most_rows);

}  // namespace kvcal
