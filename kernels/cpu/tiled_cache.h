#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "kernels/cpu/tile_product.h"

namespace kvcal::cpu {

/// Keys in a block; blocks begin at multiples of it, counted from the segment's first key.
constexpr int64_t kTileKeys = 128;
constexpr int64_t kTilePairs = kTileKeys / 2;
inline int64_t round_up_to(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

/// K and V of a batch in bfloat16: for each segment, KV head and block of keys, pairs of dimensions
/// of K [parts, k_dim / 2, kTileKeys], then pairs of keys of V [parts, kTilePairs, v_dim].
/// Dimensions that fill up a tile are zero, and so are keys behind the last.
struct TiledCache {
  int64_t k_dim = 0, v_dim = 0;
  int64_t parts = 1;                 ///< 2: what rounding took off is kept too
  std::vector<int64_t> first_block;  ///< [segments + 1] blocks of one head before each
  int64_t kv_heads = 0;
  uint32_t* data = nullptr;

  explicit TiledCache(const AttentionArgs& args)
      : k_dim(round_up_to(args.head_dim, kTileSteps)),
        v_dim(round_up_to(args.value_dim(), kTileColumns)),
        parts(is_fp8(args.kv_dtype) || args.kv_dtype == KvDType::kBFloat16 ? 1 : 2),
        kv_heads(args.kv_heads) {
    first_block.push_back(0);
    for (const Segment& segment : args.segments)
      first_block.push_back(first_block.back() + (segment.kv_count + kTileKeys - 1) / kTileKeys);
  }
  int64_t k_part_size() const { return k_dim / 2 * kTileKeys; }
  int64_t k_size() const { return parts * k_part_size(); }
  int64_t v_part_size() const { return kTilePairs * v_dim; }
  int64_t block_size() const { return k_size() + parts * v_part_size(); }
  int64_t blocks() const { return first_block.back() * kv_heads; }
  uint32_t* block(int64_t segment, int64_t kv_head, int64_t index) const {
    const int64_t first = first_block[static_cast<size_t>(segment)];
    const int64_t here = first_block[static_cast<size_t>(segment) + 1] - first;
    return data + (first * kv_heads + kv_head * here + index) * block_size();
  }
};

/// One block to lay out.
struct CacheBlock {
  const Segment* segment = nullptr;
  int64_t kv_head = 0, first_key = 0, keys = 0;
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
