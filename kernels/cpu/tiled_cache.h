#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "core/number.h"
#include "kernels/cpu/amx_rows.h"
#include "kernels/cpu/score_rows.h"
#include "kernels/cpu/tile_product.h"

namespace kvcal::cpu {

/// Keys in a block; blocks begin at multiples of it, counted from the segment's first key.
constexpr int64_t kTileKeys = 128;
/// K and V of a batch in bfloat16. For each segment, KV head and block of keys: pairs of dimensions
/// of K [parts, k_dim / 2, keys], then pairs of keys of V [parts, keys / 2, v_dim], then, with
/// has_bytes, fours of dimensions of K as bytes [k_dim / 4, keys] and their scales [keys]. keys is
/// kTileKeys, except in a segment's last block, which has as many whole tiles as it needs. Padding
/// dimensions and keys are zero. With is_for_amx, K and V are in the tiles that AmxScores and
/// AmxValues read.
struct TiledCache {
  int64_t k_dim = 0, v_dim = 0;
  int64_t parts = 1;       ///< 2: rounding errors are kept too
  bool has_bytes = false;  ///< for ScoreRows
  bool is_for_amx = false;
  std::vector<int64_t> first_key;  ///< [segments + 1] keys of one head before each
  int64_t kv_heads = 0;
  uint32_t* data = nullptr;

  explicit TiledCache(const AttentionArgs& args)
      : k_dim(round_up(args.head_dim, kTileSteps)),
        v_dim(round_up(args.value_dim(), kTileColumns)),
        parts(is_fp8(args.kv_dtype) || args.kv_dtype == KvDType::kBFloat16 ? 1 : 2),
        has_bytes(is_plain(args) && weighs_in_registers()),
        is_for_amx(is_plain(args) && weighs_between_tiles()),
        kv_heads(args.kv_heads) {
    first_key.push_back(0);
    for (const Segment& segment : args.segments)
      first_key.push_back(first_key.back() + round_up(segment.kv_count, kTileColumns));
  }
  /// Whether nothing stands between scores and weights.
  bool is_plain(const AttentionArgs& args) const {
    return parts == 1 && args.softcap == 0.0f && !args.selection.words;
  }
  /// Words of one key, and of all keys.
  int64_t key_size() const { return parts * (k_dim + v_dim) / 2 + (has_bytes ? k_dim / 4 + 1 : 0); }
  int64_t size() const { return first_key.back() * kv_heads * key_size(); }

  /// One block of a segment.
  struct Block {
    int64_t keys = 0;  ///< in whole tiles
    uint32_t* k = nullptr;
    int64_t k_part = 0;  ///< pairs from k to its rounding errors
    uint32_t* v = nullptr;
    int64_t v_part = 0;
    uint32_t* k_bytes = nullptr;
    float* k_scales = nullptr;
  };
  Block block(int64_t segment, int64_t kv_head, int64_t index) const {
    const int64_t first = first_key[static_cast<size_t>(segment)];
    const int64_t in_segment = first_key[static_cast<size_t>(segment) + 1] - first;
    Block block{.keys = std::min(kTileKeys, in_segment - index * kTileKeys)};
    block.k = data + (first * kv_heads + kv_head * in_segment + index * kTileKeys) * key_size();
    block.k_part = k_dim / 2 * block.keys;
    block.v = block.k + parts * block.k_part;
    block.v_part = block.keys / 2 * v_dim;
    block.k_bytes = block.v + parts * block.v_part;
    block.k_scales = reinterpret_cast<float*>(block.k_bytes + k_dim / 4 * block.keys);
    return block;
  }
};

/// One block to write.
struct CacheBlock {
  const Segment* segment = nullptr;
  int64_t kv_head = 0, first_key = 0, keys = 0;
  TiledCache::Block tiles;
};

/// All blocks of a batch.
std::vector<CacheBlock> cache_blocks(const AttentionArgs& args, const TiledCache& cache);

/// Floats of scratch memory for lay_out.
inline int64_t layout_scratch(const TiledCache& cache) {
  const int64_t widest = std::max(cache.k_dim, cache.v_dim);
  return kTileColumns * widest / 2 + widest + kTileColumns * cache.k_dim / 4;
}
/// Reads the block's rows of the cache and writes its k and v.
void lay_out(const AttentionArgs& args, const CacheBlock& block, const TiledCache& cache,
             float* scratch);

}  // namespace kvcal::cpu
