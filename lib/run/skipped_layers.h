#pragma once

#include <cstdint>
#include <vector>

#include "family/model_config.h"

namespace kvcal {

/// The layers, and those that read their caches, which are stored one way for all that read them.
/// Ascending. Throws Error for a layer without K and V.
std::vector<int64_t> with_readers(const std::vector<int64_t>& layers, const ModelConfig& config);

}  // namespace kvcal
