#pragma once

#include <vector>

namespace kvcal {

/// Some rows of one sample's K in one layer, spread over its tokens.
struct KeyRows {
  std::vector<float> before;  ///< [rows, kv_heads, head_dim], without RoPE
  std::vector<float> cached;  ///< likewise, with RoPE: as the cache gets them
};

}  // namespace kvcal
