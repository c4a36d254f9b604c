#pragma once

#include <cstdint>

namespace kvcal {

/// Storage of K or V of one head and token.
struct SideLayout {
  int bits = 8;          ///< of a code
  int64_t block = 0;     ///< values that share a stored scale; 0: all of a head
  int scale_bytes = 0;   ///< of a stored scale with what is stored beside it; 0: none is stored
  int64_t multiple = 1;  ///< divides head_dim
  int rotated_bits = 0;  ///< of codes of dimensions that RoPE rotates; 0: bits
};

/// Storage of K and V in an engine's cache. Of a model that keeps a latent (MLA), K is the normed
/// latent and V the rotated key.
struct CacheLayout {
  SideLayout k = {}, v = {};
  int64_t aligned = 1;        ///< K and V of a head and token together take a multiple of bytes
  bool needs_scales = false;  ///< a calibrated scale a layer; else tokens make their own
  float largest = 0.0f;       ///< scale = amax / largest, where it needs scales
  float holds = 0.0f;         ///< times the scale: the largest magnitude that is not clipped
  // Heads that the format takes, besides multiples of their sizes.
  bool power_of_two = false;
  int64_t least = 1, most = int64_t{1} << 20;
  int64_t rotated_multiple = 1;        ///< divides the dimensions that RoPE rotates
  int64_t latent = 0, latent_key = 0;  ///< sizes of the only latent that it takes; 0: none
  /// First layers, and as many last ones, that engines leave in 16 bits in models without recurrent
  /// layers.
  int64_t plain_layers = 0;
};

/// Whether the format has heads of K, or of V, of a size.
constexpr bool takes_head(const CacheLayout& layout, int64_t size, bool is_value) {
  if (layout.latent != 0) return size == (is_value ? layout.latent_key : layout.latent);
  if (layout.power_of_two && (size & (size - 1)) != 0) return false;
  const int64_t multiple = is_value ? layout.v.multiple : layout.k.multiple;
  return size % multiple == 0 && size >= layout.least && size <= layout.most;
}

/// Sizes of K and V of a head, and the dimensions of K that RoPE rotates.
struct CachedSizes {
  int64_t k = 0, v = 0, rotated = 0;
};

constexpr int64_t bytes_of(const SideLayout& side, int64_t size, int64_t rotated) {
  const int64_t wide = side.rotated_bits == 0 ? 0 : rotated;
  const int64_t scales = side.scale_bytes == 0 ? 0 : side.block == 0 ? 1 : size / side.block;
  const int64_t bits = (size - wide) * side.bits + wide * side.rotated_bits;
  return (bits + 7) / 8 + scales * side.scale_bytes;
}

/// Bytes of K and V of one head and token.
constexpr int64_t bytes_of(const CacheLayout& layout, const CachedSizes& sizes) {
  const int64_t bytes = bytes_of(layout.k, sizes.k, sizes.rotated) + bytes_of(layout.v, sizes.v, 0);
  return (bytes + layout.aligned - 1) / layout.aligned * layout.aligned;
}

}  // namespace kvcal
