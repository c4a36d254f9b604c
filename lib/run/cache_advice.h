#pragma once

#include <vector>

#include "calib/cache_loss.h"
#include "core/json.h"
#include "run/calibration_result.h"
#include "run/eval_variants.h"

namespace kvcal {

/// A cache that engines offer, and what statistics say that it loses.
struct AdvisedCache {
  CacheLabel label;
  std::vector<LayerCacheLoss> layers;
  double loss = 0;  ///< expected_loss of the layers
};

/// Every cache that engines offer for the model, the least loss first. Throws Error where the
/// calibration has no statistics of K and V.
std::vector<AdvisedCache> advise_caches(const CalibrationResult& result);

/// Shares of all values of K or V of the layers, and the root of the mean of their channel errors.
struct SideShares {
  double clipped = 0, to_zero = 0, relative_error = 0;
};
SideShares shares_of(const std::vector<LayerCacheLoss>& layers, SideLoss LayerCacheLoss::*side);

/// Output of `kvcal scales --advise --json`: each cache with its shares, and those of each layer.
Json to_json(const std::vector<AdvisedCache>& caches);

}  // namespace kvcal
