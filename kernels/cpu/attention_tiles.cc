#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tile_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_tiles.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention_lanes-inl.h"

// Attention with products of bfloat16. K and V are laid out once for all queries: K row by row, V
// transposed, both in blocks of keys. FP8 codes are exact in bfloat16, so their scales go to the
// query and to the result; other caches, the query and the weights are rounded once. Queries lie
// across the lanes, as in float32.
#ifndef KVCAL_KERNELS_CPU_ATTENTION_TILES_ONCE
#define KVCAL_KERNELS_CPU_ATTENTION_TILES_ONCE
namespace kvcal::cpu {

/// Queries of a task, and keys in a block; blocks begin at multiples of it, counted from the
/// segment's first key.
constexpr int64_t kTileQueries = 64, kTileKeys = 128;

inline int64_t round_up_to(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

/// K and V of a batch in bfloat16: for each segment, KV head and block of keys, [kTileKeys, k_dim],
/// then [v_dim, kTileKeys]. Dimensions that fill up a tile are zero, and so are keys behind the
/// last.
struct TiledCache {
  int64_t k_dim = 0, v_dim = 0;
  std::vector<int64_t> first_block;  ///< [segments + 1] blocks of one head before each
  int64_t kv_heads = 0;
  BF16* data = nullptr;

  TiledCache(const AttentionArgs& args)
      : k_dim(round_up_to(args.head_dim, kTileSteps)),
        v_dim(round_up_to(args.value_dim(), kTileRows)),
        kv_heads(args.kv_heads) {
    first_block.push_back(0);
    for (const Segment& segment : args.segments)
      first_block.push_back(first_block.back() + (segment.kv_count + kTileKeys - 1) / kTileKeys);
  }
  int64_t block_size() const { return kTileKeys * (k_dim + v_dim); }
  int64_t blocks() const { return first_block.back() * kv_heads; }
  BF16* block(int64_t segment, int64_t kv_head, int64_t index) const {
    const int64_t first = first_block[static_cast<size_t>(segment)];
    const int64_t here = first_block[static_cast<size_t>(segment) + 1] - first;
    return data + (first * kv_heads + kv_head * here + index) * block_size();
  }
};

/// One block to lay out.
struct CacheBlock {
  const Segment* segment = nullptr;
  int64_t kv_head = 0, first_key = 0, keys = 0;
  BF16* k = nullptr;  ///< [kTileKeys, k_dim]
  BF16* v = nullptr;  ///< [v_dim, kTileKeys]
};

inline int64_t tile_layout_scratch(const TiledCache& cache) {
  return cache.v_dim * kTileColumns + kTileColumns * cache.v_dim;
}
inline int64_t tile_attention_scratch(const TiledCache& cache) {
  return (cache.k_dim * 3 / 2 + cache.v_dim + kTileKeys * 3 / 2 + 5) * kTileQueries +
         4 * cache.v_dim;
}

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// bfloat16 of two finite numbers, the first in the low half. Ties go away from zero.
HWY_INLINE VI pair_of(VF low, VF high) {
  const VI half = set_int(0x8000);
  const VI first =
      hn::BitCast(DI(), hn::ShiftRight<16>(hn::BitCast(DU(), hn::Add(as_int(low), half))));
  const VI second = hn::And(hn::Add(as_int(high), half), set_int(static_cast<int32_t>(0xffff0000)));
  return hn::Or(first, second);
}

/// 2^x for x <= 0 within 1e-4, less than a bfloat16 weight's own rounding of 2e-3; 0 below -126.5,
/// NaN stays NaN. The polynomial meets 2^f at the Chebyshev nodes of [-1/2, 1/2].
HWY_INLINE VF weight_of(VF x) {
  // The low bits of the sum are the whole part plus float32's bias.
  const VF shift = set(kWholeShift + 127.0f);
  const VF clamped = hn::Max(set(-127.0f), x);
  const VF shifted = hn::Add(clamped, shift);
  const VF f = hn::Sub(clamped, hn::Sub(shifted, shift));
  VF sum = set(0.05583828f);
  sum = hn::MulAdd(sum, f, set(0.24263948f));
  sum = hn::MulAdd(sum, f, set(0.69313673f));
  sum = hn::MulAdd(sum, f, set(0.99992456f));
  return hn::Mul(sum, as_float(hn::ShiftLeft<23>(as_int(shifted))));
}

/// Rows of V, [keys, dim] of the cache, become [v_dim, kTileColumns] columns. scratch: as large as
/// the two together.
void lay_out_values(const KvRows& rows, int64_t v_dim, float* scratch, BF16* out) {
  float* values = scratch;                          // [kTileColumns, v_dim]
  float* columns = scratch + kTileColumns * v_dim;  // [v_dim, kTileColumns]
  std::fill_n(values, kTileColumns * v_dim, 0.0f);
  read_kv(rows, values, v_dim);
  for (int64_t key = 0; key < kTileColumns; key += 4) {
    const float* four[4];
    for (int64_t i = 0; i < 4; ++i) four[i] = values + (key + i) * v_dim;
    rows_to_columns(four, v_dim, 1.0f, columns + key, kTileColumns);
  }
  for (int64_t d = 0; d < v_dim; ++d)
    convert_row(columns + d * kTileColumns, kTileColumns, out + d * kTileKeys);
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
  const int64_t padded = round_up_to(block.keys, kTileColumns);
  if (cache.k_dim > args.head_dim) std::fill_n(block.k, padded * cache.k_dim, BF16{});
  read_kv(rows_of(args.k, args.head_dim, 0, block.keys), block.k, cache.k_dim);
  std::fill_n(block.k + block.keys * cache.k_dim, (padded - block.keys) * cache.k_dim, BF16{});
  for (int64_t key = 0; key < padded; key += kTileColumns)
    lay_out_values(rows_of(args.v, args.value_dim(), key, std::min(block.keys, key + kTileColumns)),
                   cache.v_dim, scratch, block.v + key);
}

/// One task: its queries against all keys they see.
class AttendInTiles {
 public:
  AttendInTiles(const AttentionArgs& args, const AttentionTask& task, const TiledCache& cache,
                const TileSession& tiles, float* scratch)
      : args_(args),
        task_(task),
        cache_(cache),
        tiles_(tiles),
        lanes_(args, task, take(scratch, Lanes::kScratch)) {
    q_ = reinterpret_cast<uint32_t*>(take(scratch, cache.k_dim / 2 * kTileQueries));
    columns_ = take(scratch, cache.k_dim * kTileQueries);
    out_ = take(scratch, cache.v_dim * kTileQueries);
    scores_ = take(scratch, kTileKeys * kTileQueries);
    weights_ = reinterpret_cast<uint32_t*>(take(scratch, kTileKeys / 2 * kTileQueries));
    rows_ = take(scratch, 4 * cache.v_dim);
  }

  void run() {
    load_queries();
    std::fill_n(out_, cache_.v_dim * kTileQueries, 0.0f);
    const int64_t begin = lanes_.begin(), end = lanes_.end();
    for (int64_t block = begin / kTileKeys; block * kTileKeys < end; ++block) {
      const int64_t first = block * kTileKeys;
      add_keys(block, std::max<int64_t>(0, begin - first) / kTileColumns * kTileColumns,
               round_up_to(std::min(kTileKeys, end - first), kTileColumns));
    }
    lanes_.store_results(out_, scale_of(args_.v_scales), rows_);
  }

 private:
  using Lanes = AttentionLanes<kTileQueries>;
  static constexpr int64_t kStrip = kLanes >= 4 ? 2 : 1;
  static_assert(kTileQueries % (kStrip * kLanes) == 0);

  static float* take(float*& scratch, int64_t count) {
    float* part = scratch;
    scratch += count;
    return part;
  }
  float scale_of(const float* scales) const {
    return is_fp8(args_.kv_dtype) ? scales[task_.kv_head] : 1.0f;
  }

  void load_queries() {
    lanes_.load_queries(scale_of(args_.k_scales), columns_);
    std::fill_n(columns_ + args_.head_dim * kTileQueries,
                (cache_.k_dim - args_.head_dim) * kTileQueries, 0.0f);
    for (int64_t pair = 0; pair < cache_.k_dim / 2; ++pair)
      for (int64_t lane = 0; lane < kTileQueries; lane += kLanes) {
        const float* low = columns_ + 2 * pair * kTileQueries + lane;
        store_pair(hn::Load(DF(), low), hn::Load(DF(), low + kTileQueries),
                   q_ + pair * kTileQueries + lane);
      }
  }
  HWY_INLINE static void store_pair(VF low, VF high, uint32_t* out) {
    hn::Store(hn::BitCast(DU(), pair_of(low, high)), DU(), out);
  }

  /// Folds keys [begin, end) of a block into sums and maxima.
  void add_keys(int64_t block, int64_t begin, int64_t end) {
    const BF16* k = cache_.block(task_.segment_index, task_.kv_head, block);
    tiles_.multiply({.a = k + begin * cache_.k_dim,
                     .a_stride = cache_.k_dim,
                     .b = q_,
                     .b_stride = kTileQueries,
                     .c = scores_,
                     .c_stride = kTileQueries,
                     .rows = end - begin,
                     .columns = kTileQueries,
                     .steps = cache_.k_dim});
    const int64_t first = block * kTileKeys;
    lanes_.finish_scores(first + begin, first + end, scores_);
    bool changed = false;
    for (int64_t lane = 0; lane < kTileQueries; lane += kStrip * kLanes)
      changed |= soften(end - begin, lane);
    if (changed) correct();
    tiles_.multiply({.a = k + kTileKeys * cache_.k_dim + begin,
                     .a_stride = kTileKeys,
                     .b = weights_,
                     .b_stride = kTileQueries,
                     .c = out_,
                     .c_stride = kTileQueries,
                     .rows = cache_.v_dim,
                     .columns = kTileQueries,
                     .steps = end - begin,
                     .accumulate = true});
  }

  /// Turns the scores of a strip of queries into pairs of weights below the maximum so far; true
  /// where what was summed before must be corrected.
  bool soften(int64_t keys, int64_t lane) {
    VF largest[kStrip], sums[kStrip];
    const bool changed = lanes_.raise_maxima<kStrip>(scores_, keys, lane, largest, sums);
    for (int64_t key = 0; key < keys; key += 2)
      for (int64_t i = 0; i < kStrip; ++i) {
        const float* score = scores_ + key * kTileQueries + lane + i * kLanes;
        const VF low = weight_of(hn::Sub(hn::Load(DF(), score), largest[i]));
        const VF high = weight_of(hn::Sub(hn::Load(DF(), score + kTileQueries), largest[i]));
        store_pair(low, high, weights_ + key / 2 * kTileQueries + lane + i * kLanes);
        sums[i] = hn::Add(sums[i], hn::Add(low, high));
      }
    lanes_.store_sums<kStrip>(lane, sums);
    return changed;
  }

  void correct() {
    for (int64_t d = 0; d < cache_.v_dim; ++d)
      for (int64_t lane = 0; lane < kTileQueries; lane += kLanes) {
        float* sum = out_ + d * kTileQueries + lane;
        hn::Store(hn::Mul(hn::Load(DF(), sum), hn::Load(DF(), lanes_.correction() + lane)), DF(),
                  sum);
      }
  }

  const AttentionArgs& args_;
  const AttentionTask& task_;
  const TiledCache& cache_;
  const TileSession& tiles_;
  Lanes lanes_;
  uint32_t* q_;        ///< [k_dim / 2, kTileQueries] pairs
  float* columns_;     ///< [k_dim, kTileQueries]: the queries in float32
  float* out_;         ///< [v_dim, kTileQueries]
  float* scores_;      ///< [kTileKeys, kTileQueries]
  uint32_t* weights_;  ///< [kTileKeys / 2, kTileQueries] pairs
  float* rows_;        ///< [4, v_dim]
};

void attend_in_tiles(const AttentionArgs& args, const AttentionTask& task, const TiledCache& cache,
                     const TileSession& tiles, float* scratch) {
  AttendInTiles(args, task, cache, tiles, scratch).run();
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(lay_out_block);
HWY_EXPORT(attend_in_tiles);

namespace {

std::vector<CacheBlock> cache_blocks(const AttentionArgs& args, const TiledCache& cache) {
  std::vector<CacheBlock> blocks;
  for (size_t i = 0; i < args.segments.size(); ++i) {
    const Segment& segment = args.segments[i];
    for (int64_t head = 0; head < args.kv_heads; ++head)
      for (int64_t first = 0; first < segment.kv_count; first += kTileKeys) {
        BF16* data = cache.block(static_cast<int64_t>(i), head, first / kTileKeys);
        blocks.push_back({.segment = &segment,
                          .kv_head = head,
                          .first_key = first,
                          .keys = std::min(kTileKeys, segment.kv_count - first),
                          .k = data,
                          .v = data + kTileKeys * cache.k_dim});
      }
  }
  return blocks;
}

}  // namespace

void CpuBackend::attention_in_tiles(const AttentionArgs& args) {
  TiledCache cache(args);
  cache.data = tiled_cache_.get<BF16>(cache.blocks() * cache.block_size());
  const std::vector<CacheBlock> blocks = cache_blocks(args, cache);
  pool_.parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t index, int thread) {
    float* scratch = scratch_[static_cast<size_t>(thread)].get<float>(tile_layout_scratch(cache));
    HWY_DYNAMIC_DISPATCH(lay_out_block)(args, blocks[static_cast<size_t>(index)], cache, scratch);
  });
  const std::vector<AttentionTask> tasks = cut_attention(args, kTileQueries);
  pool_.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t index, int thread) {
    const TileSession tiles(tile_instructions());
    float* scratch =
        scratch_[static_cast<size_t>(thread)].get<float>(tile_attention_scratch(cache));
    HWY_DYNAMIC_DISPATCH(attend_in_tiles)
    (args, tasks[static_cast<size_t>(index)], cache, tiles, scratch);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
