#pragma once

#include <cstdint>

#include "family/model_config.h"

namespace kvcal {

/// Sizes of the KV cache of one token in all layers, and of what recurrent layers keep.
struct CacheSize {
  int64_t heads = 0, k_dim = 0, v_dim = 0;
  int64_t layers = 0;                    ///< that attend
  int64_t values_per_token = 0;          ///< as many bytes in FP8, twice as many in 16 bits
  int64_t state_bytes_per_sequence = 0;  ///< float32, however long the sequence is
};
CacheSize cache_size(const ModelConfig& config);

}  // namespace kvcal
