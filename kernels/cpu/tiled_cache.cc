#include "kernels/cpu/tiled_cache.h"

#include <algorithm>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tiled_cache.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/kv-inl.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Turns kTileColumns rows [kTileColumns, words] to columns, out [words, keys]. Words, pairs of
/// bfloat16 or fours of bytes, are moved as if they were float32.
void turn_keys(const void* rows, int64_t words, uint32_t* out, int64_t keys) {
  const auto* from = static_cast<const float*>(rows);
  for (int64_t key = 0; key < kTileColumns; key += 4) {
    const float* four[4];
    for (int64_t i = 0; i < 4; ++i) four[i] = from + (key + i) * words;
    rows_to_columns(four, words, reinterpret_cast<float*>(out) + key, keys);
  }
}

/// turn_keys into the tiles of AmxScores.
void turn_keys_to_tiles(const void* rows, int64_t words, uint32_t* out) {
  const auto* from = static_cast<const float*>(rows);
  for (int64_t step = 0; step < words; step += 16, out += 512)
    for (int64_t key = 0; key < kAmxKeys; key += 4) {
      const int64_t column = amx_column(key);
      const float* four[4];
      for (int64_t i = 0; i < 4; ++i) four[i] = from + (key + i) * words + step;
      rows_to_columns(four, 16, reinterpret_cast<float*>(out) + column / 16 * 256 + column % 16,
                      16);
    }
}

/// Writes kTileColumns keys as bytes, for ScoreRows.
void turn_bytes(const BF16* rows, int64_t k_dim, uint8_t* bytes, const TiledCache::Block& tiles,
                int64_t key) {
  for (int64_t i = 0; i < kTileColumns; ++i)
    tiles.k_scales[key + i] = write_bytes(rows + i * k_dim, k_dim, 128, bytes + i * k_dim);
  turn_keys(bytes, k_dim / 4, tiles.k_bytes + key, tiles.keys);
}

/// Converts rows of V [kTileColumns, v_dim] to pairs of keys, [kTileColumns / 2, v_dim]; at(pair,
/// d) is where the pairs of some dimensions go.
template <class At>
HWY_INLINE void pair_values(const BF16* rows, int64_t v_dim, const At& at) {
  for (int64_t pair = 0; pair < kTileColumns / 2; ++pair) {
    const uint16_t* low = &rows[2 * pair * v_dim].bits;
    const uint16_t* high = low + v_dim;
    for (int64_t d = 0; d < v_dim; d += lanes())
      hn::StoreU(hn::Or(hn::PromoteTo(DU(), hn::LoadU(DU16(), low + d)),
                        hn::ShiftLeft<16>(hn::PromoteTo(DU(), hn::LoadU(DU16(), high + d)))),
                 DU(), at(pair, d));
  }
}

/// Replaces bfloat16 values by their rounding errors, in bfloat16.
void take_rest(const float* values, int64_t count, BF16* rounded) {
  store_row(count, rounded,
            [=](auto at) HWY_ATTR { return hn::Sub(at.load(values), at.load(rounded)); });
}

void lay_out_block(const AttentionArgs& args, const CacheBlock& block, const TiledCache& cache,
                   float* scratch) {
  const auto rows_of = [&](const void* stored, int64_t dim, int64_t begin, int64_t end) {
    const int64_t row_stride = args.kv_heads * dim;
    const int64_t element =
        (block.segment->kv_begin + block.first_key + begin) * row_stride + block.kv_head * dim;
    return KvRows{
        .dtype = args.kv_dtype,
        .first = static_cast<const std::byte*>(stored) + element * bytes_per_element(args.kv_dtype),
        .row_stride = row_stride,
        .rows = end - begin,
        .head_dim = dim,
        .scale = 1.0f};
  };
  auto* rows = reinterpret_cast<BF16*>(scratch);
  const auto read = [&](const void* stored, int64_t dim, int64_t padded_dim, int64_t key) {
    const int64_t end = std::min(block.keys, key + kTileColumns);
    if (padded_dim > dim || end < key + kTileColumns)
      std::fill_n(rows, kTileColumns * padded_dim, BF16{});
    read_kv(rows_of(stored, dim, key, end), rows, padded_dim);
  };
  // Replaces the rows by the rounding errors that the bfloat16 values before them left.
  const auto take_rests = [&](const void* stored, int64_t dim, int64_t padded_dim, int64_t key) {
    float* values = scratch + kTileColumns * std::max(cache.k_dim, cache.v_dim) / 2;
    for (int64_t i = key; i < std::min(block.keys, key + kTileColumns); ++i) {
      read_kv(rows_of(stored, dim, i, i + 1), values, padded_dim);
      take_rest(values, dim, rows + (i - key) * padded_dim);
    }
  };
  const TiledCache::Block& tiles = block.tiles;
  const int64_t widest = std::max(cache.k_dim, cache.v_dim);
  auto* bytes = reinterpret_cast<uint8_t*>(scratch + kTileColumns * widest / 2 + widest);
  for (int64_t key = 0; key < block.keys; key += kTileColumns) {
    uint32_t* k = tiles.k + key;
    uint32_t* v = tiles.v + key / 2 * cache.v_dim;
    read(args.k, args.head_dim, cache.k_dim, key);
    cache.is_for_amx ? turn_keys_to_tiles(rows, cache.k_dim / 2, tiles.k + key * cache.k_dim / 2)
                     : turn_keys(rows, cache.k_dim / 2, k, tiles.keys);
    if (cache.has_bytes) turn_bytes(rows, cache.k_dim, bytes, tiles, key);
    if (cache.parts > 1) {
      take_rests(args.k, args.head_dim, cache.k_dim, key);
      turn_keys(rows, cache.k_dim / 2, k + tiles.k_part, tiles.keys);
    }
    read(args.v, args.value_dim(), cache.v_dim, key);
    if (cache.is_for_amx) {
      uint32_t* to = tiles.v + key * 16;
      pair_values(rows, cache.v_dim, [=, column = tiles.keys * 16](int64_t pair, int64_t d) {
        return to + d / 32 * column + d % 32 / 16 * 256 + pair * 16 + d % 16;
      });
      continue;
    }
    const auto in_rows = [&](uint32_t* to) {
      return [=, width = cache.v_dim](int64_t pair, int64_t d) { return to + pair * width + d; };
    };
    pair_values(rows, cache.v_dim, in_rows(v));
    if (cache.parts > 1) {
      take_rests(args.v, args.value_dim(), cache.v_dim, key);
      pair_values(rows, cache.v_dim, in_rows(v + tiles.v_part));
    }
  }
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(lay_out_block);

std::vector<CacheBlock> cache_blocks(const AttentionArgs& args, const TiledCache& cache) {
  std::vector<CacheBlock> blocks;
  for (size_t i = 0; i < args.segments.size(); ++i) {
    const Segment& segment = args.segments[i];
    for (int64_t head = 0; head < args.kv_heads; ++head)
      for (int64_t first = 0; first < segment.kv_count; first += kTileKeys)
        blocks.push_back({.segment = &segment,
                          .kv_head = head,
                          .first_key = first,
                          .keys = std::min(kTileKeys, segment.kv_count - first),
                          .tiles = cache.block(static_cast<int64_t>(i), head, first / kTileKeys)});
  }
  return blocks;
}

void lay_out(const AttentionArgs& args, const CacheBlock& block, const TiledCache& cache,
             float* scratch) {
  HWY_DYNAMIC_DISPATCH(lay_out_block)(args, block, cache, scratch);
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
