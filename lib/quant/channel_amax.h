#pragma once

#include <vector>

namespace kvcal {

/// Largest magnitudes of the channels of one layer's cache, over all tokens; empty: the layer has
/// none of its own.
struct ChannelAmax {
  std::vector<float> k;  ///< [kv_heads, head_dim], after RoPE
  std::vector<float> v;  ///< [kv_heads, value_dim]
};

}  // namespace kvcal
