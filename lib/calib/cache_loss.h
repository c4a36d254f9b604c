#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "family/model_config.h"
#include "quant/cache_type.h"
#include "quant/calibration.h"
#include "quant/histogram_search.h"
#include "quant/layer_kv_scales.h"

namespace kvcal {

/// What a cache loses of K and V of one layer.
struct LayerCacheLoss {
  int64_t layer = 0;
  CodeErrors k, v;
};

/// Estimates the loss of a cache from statistics alone. Each head of a token is drawn anew: its
/// values independently from the head's histogram, evenly within a bin, with signs at random, the
/// same ones on every machine; then it goes through the cache's own arithmetic. So scales of tokens
/// and blocks are those of such heads: dimensions and tokens of their own magnitudes are unknown.
/// CodeErrors::clipped is of the whole histogram; so is to_zero, but where the scales of tokens or
/// blocks decide. scales: as scales_of has them for the type.
/// Layers with scales and a cache of their own, in order; empty where statistics are missing.
std::vector<LayerCacheLoss> cache_losses(const Calibration& calibration, const ModelConfig& config,
                                         const CacheType& type,
                                         const std::vector<LayerKvScales>& scales);

/// Expected mean over layers of the squared relative errors of K and of V, which ranks caches.
double expected_loss(const std::vector<LayerCacheLoss>& layers);

}  // namespace kvcal
