#pragma once

#include <cstdint>

#include "forward/layer_forward.h"
#include "stored/weights.h"

namespace kvcal {

/// Throws Error where K or V of the layer is zero in every head of every sample that has values,
/// and none of the weights that make it is zero: then a norm has met numbers beyond its range, and
/// the smallest scale would stand for no real magnitude.
void refuse_zero_cache(const LayerObservation& seen, const ModelConfig& config,
                       const Weights& weights, int64_t layer);

}  // namespace kvcal
