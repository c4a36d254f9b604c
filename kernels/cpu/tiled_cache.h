#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "kernels/cpu/tile_product.h"

namespace kvcal::cpu {

/// Keys in a block; blocks begin at multiples of it, counted from the segment's first key.
constexpr int64_t kTileKeys = 128;
inline int64_t round_up_to(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

/// K and V of a batch in bfloat16: for each segment, KV head and block of keys, pairs of dimensions
/// of K [parts, k_dim / 2, keys], then pairs of keys of V [parts, keys / 2, v_dim], where keys is
/// kTileKeys but in a segment's last block, which has as many whole tiles as it needs. Dimensions
/// that fill up a tile are zero, and so are keys behind the last.
struct TiledCache {
  int64_t k_dim = 0, v_dim = 0;
  int64_t parts = 1;               ///< 2: what rounding took off is kept too
  std::vector<int64_t> first_key;  ///< [segments + 1] keys of one head before each
  int64_t kv_heads = 0;
  uint32_t* data = nullptr;

  explicit TiledCache(const AttentionArgs& args)
      : k_dim(round_up_to(args.head_dim, kTileSteps)),
        v_dim(round_up_to(args.value_dim(), kTileColumns)),
        parts(is_fp8(args.kv_dtype) || args.kv_dtype == KvDType::kBFloat16 ? 1 : 2),
        kv_heads(args.kv_heads) {
    first_key.push_back(0);
    for (const Segment& segment : args.segments)
      first_key.push_back(first_key.back() + round_up_to(segment.kv_count, kTileColumns));
  }
  /// Pairs that a key takes, and all of them.
  int64_t key_size() const { return parts * (k_dim + v_dim) / 2; }
  int64_t size() const { return first_key.back() * kv_heads * key_size(); }
  int64_t keys_of(int64_t segment) const {
    return first_key[static_cast<size_t>(segment) + 1] - first_key[static_cast<size_t>(segment)];
  }
  uint32_t* block(int64_t segment, int64_t kv_head, int64_t index) const {
    const int64_t key = first_key[static_cast<size_t>(segment)] * kv_heads +
                        kv_head * keys_of(segment) + index * kTileKeys;
    return data + key * key_size();
  }
  /// Keys of a block.
  int64_t keys_of(int64_t segment, int64_t index) const {
    return std::min(kTileKeys, keys_of(segment) - index * kTileKeys);
  }
};

/// One block to lay out.
struct CacheBlock {
  const Segment* segment = nullptr;
  int64_t kv_head = 0, first_key = 0, keys = 0;
  int64_t padded_keys = 0;  ///< in whole tiles
  uint32_t* k = nullptr;
  uint32_t* v = nullptr;
};

/// All blocks of a batch.
std::vector<CacheBlock> cache_blocks(const AttentionArgs& args, const TiledCache& cache);

/// Floats of working memory of lay_out.
inline int64_t layout_scratch(const TiledCache& cache) {
  const int64_t widest = std::max(cache.k_dim, cache.v_dim);
  return kTileColumns * widest / 2 + widest;
}
/// Reads the block's rows of the cache and writes its k and v.
void lay_out(const AttentionArgs& args, const CacheBlock& block, const TiledCache& cache,
             float* scratch);

}  // namespace kvcal::cpu
