#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "family/model_config.h"
#include "quant/cache_type.h"

/// What engines keep of a model's K and V in a format.
namespace kvcal {

/// Sizes of the layer's heads. Without RoPE, all dimensions of K count as rotated: engines take the
/// model's partial_rotary_factor, or 1.
CachedSizes cached_sizes(const ModelConfig& config, int64_t layer);

/// Why engines cannot keep the heads of the layer's K and V in the format; empty where they can.
std::string head_problem(CacheFormat format, const ModelConfig& config, int64_t layer);

/// Layers that engines leave in 16 bits in a cache of the type, ascending: the first and last ones
/// of some formats, where the model has no recurrent layers. Where these would be all layers, none:
/// such a model is too small to be served, and what the format does would not show.
std::vector<int64_t> plain_layers(const CacheType& type, const ModelConfig& config);

}  // namespace kvcal
