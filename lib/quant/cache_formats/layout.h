#pragma once

#include <cstdint>

namespace kvcal {

/// Storage of K or V of one head and token, in an engine's cache.
struct CacheLayout {
  int bits = 8;               ///< of a code
  int64_t block = 0;          ///< values that share a stored scale; 0: all of a head
  int block_scale_bytes = 0;  ///< of a stored scale; 0: none is stored
  bool needs_scales = false;  ///< a calibrated scale a layer; else tokens make their own
  /// Scale = amax / largest, where it needs scales.
  float largest = 0.0f;
  /// Divides head_dim.
  int64_t multiple = 1;
};

/// Bytes of K or V of one head and token.
constexpr int64_t bytes_of_head(const CacheLayout& layout, int64_t head_dim) {
  const int64_t scales = layout.block_scale_bytes == 0 ? 0
                         : layout.block == 0           ? 1
                                                       : head_dim / layout.block;
  return head_dim * layout.bits / 8 + scales * layout.block_scale_bytes;
}

}  // namespace kvcal
