#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tile_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_tiles.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention_queries-inl.h"
#include "kernels/cpu/transpose-inl.h"

// Attention with products of bfloat16. K and V are laid out once for all queries, in blocks of keys
// and in the pairs that tile instructions read. FP8 codes are exact in bfloat16, so their scales go
// to the query and to the result; other caches, the query and the weights are rounded once. A query
// is a row; its sums run along the keys in an order that only the key's number decides.
#ifndef KVCAL_KERNELS_CPU_ATTENTION_TILES_ONCE
#define KVCAL_KERNELS_CPU_ATTENTION_TILES_ONCE
namespace kvcal::cpu {

/// Queries of a task, and keys in a block; blocks begin at multiples of it, counted from the
/// segment's first key.
constexpr int64_t kTileQueries = 64, kTileKeys = 128;
constexpr int64_t kTilePairs = kTileKeys / 2;
/// Partial sums of a query, and the width of its row of references.
constexpr int64_t kTileParts = 16;

inline int64_t round_up_to(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

/// K and V of a batch in bfloat16: for each segment, KV head and block of keys, pairs of dimensions
/// of K [k_dim / 2, kTileKeys], then pairs of keys of V [kTilePairs, v_dim]. Dimensions that fill
/// up a tile are zero, and so are keys behind the last.
struct TiledCache {
  int64_t k_dim = 0, v_dim = 0;
  std::vector<int64_t> first_block;  ///< [segments + 1] blocks of one head before each
  int64_t kv_heads = 0;
  uint32_t* data = nullptr;

  explicit TiledCache(const AttentionArgs& args)
      : k_dim(round_up_to(args.head_dim, kTileSteps)),
        v_dim(round_up_to(args.value_dim(), kTileColumns)),
        kv_heads(args.kv_heads) {
    first_block.push_back(0);
    for (const Segment& segment : args.segments)
      first_block.push_back(first_block.back() + (segment.kv_count + kTileKeys - 1) / kTileKeys);
  }
  int64_t k_size() const { return k_dim / 2 * kTileKeys; }
  int64_t block_size() const { return k_size() + kTilePairs * v_dim; }
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

/// Floats of working memory.
inline int64_t tile_layout_scratch(const TiledCache& cache) {
  return kTileColumns * std::max(cache.k_dim, cache.v_dim) / 2;
}
inline int64_t tile_attention_scratch(const TiledCache& cache) {
  return (cache.k_dim / 2 + cache.v_dim + kTileKeys * 3 / 2 + 2 * kTileParts + 3) * kTileQueries;
}

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Weights are cut to bfloat16, not rounded, and so are made larger beforehand by what cutting
/// takes off on average: 2^-8 · (1/2) / ln 2 of a value whose logarithm is evenly spread. Their sum
/// is larger by the same.
constexpr float kCutLoss = 1.0f + 0.00281782f;

/// Writes the upper halves of the lanes of two vectors, one vector after the other.
HWY_INLINE void store_cut(VF first, VF second, BF16* out) {
#if HWY_TARGET == HWY_SCALAR
  store_low_halves(hn::BitCast(DI(), hn::ShiftRight<16>(hn::BitCast(DU(), first))), &out[0].bits);
  store_low_halves(hn::BitCast(DI(), hn::ShiftRight<16>(hn::BitCast(DU(), second))), &out[1].bits);
#else
  const hn::Repartition<uint16_t, DF> halves;
  hn::StoreU(hn::ConcatOdd(halves, hn::BitCast(halves, second), hn::BitCast(halves, first)), halves,
             &out->bits);
#endif
}

/// kCutLoss · 2^x for x < 127, within 1e-4, less than cutting's own 2e-3; 0 below -126.5 and at
/// -infinity; NaN stays NaN. The polynomials meet 2^f at the Chebyshev nodes.
HWY_INLINE VF weight_of(VF x) {
#if HWY_TARGET == HWY_AVX3
  const VF f{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF)};  // in [0, 1)
  VF sum = set(0.07896726f * kCutLoss);
  sum = hn::MulAdd(sum, f, set(0.22469316f * kCutLoss));
  sum = hn::MulAdd(sum, f, set(0.69632477f * kCutLoss));
  sum = hn::MulAdd(sum, f, set(0.99990029f * kCutLoss));
  return VF{_mm512_scalef_ps(sum.raw, x.raw)};
#else
  // The low bits of the sum are the whole part plus float32's bias.
  const VF shift = set(kWholeShift + 127.0f);
  const VF clamped = hn::Max(set(-127.0f), x);
  const VF shifted = hn::Add(clamped, shift);
  const VF f = hn::Sub(clamped, hn::Sub(shifted, shift));
  VF sum = set(0.05583828f * kCutLoss);
  sum = hn::MulAdd(sum, f, set(0.24263948f * kCutLoss));
  sum = hn::MulAdd(sum, f, set(0.69313673f * kCutLoss));
  sum = hn::MulAdd(sum, f, set(0.99992456f * kCutLoss));
  return hn::Mul(sum, as_float(hn::ShiftLeft<23>(as_int(shifted))));
#endif
}

/// kTileColumns rows of K [kTileColumns, k_dim] become columns of pairs of dimensions, out [k_dim /
/// 2, kTileKeys]. Pairs of bfloat16 are moved as if they were float32.
void turn_keys(const BF16* rows, int64_t k_dim, uint32_t* out) {
  const auto* pairs = reinterpret_cast<const float*>(rows);
  for (int64_t key = 0; key < kTileColumns; key += 4) {
    const float* four[4];
    for (int64_t i = 0; i < 4; ++i) four[i] = pairs + (key + i) * k_dim / 2;
    rows_to_columns(four, k_dim / 2, reinterpret_cast<float*>(out) + key, kTileKeys);
  }
}

/// Rows of V [kTileColumns, v_dim] become pairs of keys, out [kTileColumns / 2, v_dim].
void pair_values(const BF16* rows, int64_t v_dim, uint32_t* out) {
  for (int64_t pair = 0; pair < kTileColumns / 2; ++pair) {
    const uint16_t* low = &rows[2 * pair * v_dim].bits;
    const uint16_t* high = low + v_dim;
    for (int64_t d = 0; d < v_dim; d += kLanes)
      hn::StoreU(hn::Or(hn::PromoteTo(DU(), hn::LoadU(DU16(), low + d)),
                        hn::ShiftLeft<16>(hn::PromoteTo(DU(), hn::LoadU(DU16(), high + d)))),
                 DU(), out + pair * v_dim + d);
  }
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
  for (int64_t key = 0; key < block.keys; key += kTileColumns) {
    read(args.k, args.head_dim, cache.k_dim, key);
    turn_keys(rows, cache.k_dim, block.k + key);
    read(args.v, args.value_dim(), cache.v_dim, key);
    pair_values(rows, cache.v_dim, block.v + key / 2 * cache.v_dim);
  }
}

HWY_ALIGN constexpr int32_t kLaneNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/// One task: its queries against all keys they see. Scores are taken relative to a reference of
/// each query, which follows the largest only when that is far above it: a weight then has as many
/// digits as below, and what was summed need not be corrected.
class AttendInTiles {
 public:
  AttendInTiles(const AttentionArgs& args, const AttentionTask& task, const TiledCache& cache,
                const TileSession& tiles, float* scratch)
      : args_(args),
        task_(task),
        cache_(cache),
        tiles_(tiles),
        queries_(args, task),
        rows_(round_up_to(queries_.count(), kTileRows)) {
    const auto take = [&](int64_t count) { return std::exchange(scratch, scratch + count); };
    out_ = take(cache.v_dim * kTileQueries);
    scores_ = take(kTileKeys * kTileQueries);
    starts_ = take(kTileParts * kTileQueries);
    sums_ = take(kTileParts * kTileQueries);
    weights_ = reinterpret_cast<BF16*>(take(kTilePairs * kTileQueries));
    q_ = reinterpret_cast<BF16*>(take(cache.k_dim / 2 * kTileQueries));
    seen_ = reinterpret_cast<int32_t*>(take(kTileQueries));
    first_ = reinterpret_cast<int32_t*>(take(kTileQueries));
    last_ = reinterpret_cast<int32_t*>(take(kTileQueries));
  }

  void run() {
    load_queries();
    start_softmax();
    std::fill_n(out_, rows_ * cache_.v_dim, 0.0f);
    const int64_t begin = queries_.begin(), end = queries_.end();
    for (int64_t block = begin / kTileKeys; block * kTileKeys < end; ++block) {
      const int64_t first = block * kTileKeys;
      add_keys(block, std::max<int64_t>(0, begin - first) / kTileColumns * kTileColumns,
               round_up_to(std::min(kTileKeys, end - first), kTileColumns));
    }
    store_results();
  }

 private:
  /// How far, in powers of two, the largest score may lie from the reference. Sums of weights times
  /// values stay finite, and what vanishes is 2^-66 of the largest.
  static constexpr float kReach = 60.0f;

  float scale_of(const float* scales) const {
    return is_fp8(args_.kv_dtype) ? scales[task_.kv_head] : 1.0f;
  }

  void load_queries() {
    const int64_t head_dim = args_.head_dim;
    const VF factor = set(queries_.score_factor() * scale_of(args_.k_scales));
    for (int64_t row = 0; row < rows_; ++row) {
      const float* from = queries_.query(row);
      BF16* to = q_ + row * cache_.k_dim;
      int64_t d = 0;
      for (; d + kLanes <= head_dim; d += kLanes)
        store_from_float(hn::Mul(factor, load_as_float(from + d)), to + d);
      if (d < head_dim)
        store_part(hn::Mul(factor, load_part(from + d, head_dim - d)), to + d, head_dim - d);
      std::fill_n(to + head_dim, cache_.k_dim - head_dim, BF16{});
    }
  }

  /// Nothing seen yet but the sink.
  void start_softmax() {
    std::fill_n(sums_, rows_ * kTileParts, 0.0f);
    for (int64_t row = 0; row < rows_; ++row) {
      first_[row] = queries_.first_key(row);
      last_[row] = queries_.last_key(row);
      seen_[row] = queries_.has_sinks();
      if (seen_[row]) sums_[row * kTileParts] = kCutLoss;
      std::fill_n(starts_ + row * kTileParts, kTileParts, seen_[row] ? -queries_.sink(row) : 0.0f);
    }
  }

  /// Folds keys [begin, end) of a block into sums and references.
  void add_keys(int64_t block, int64_t begin, int64_t end) {
    const bool is_capped = args_.softcap > 0.0f;
    const uint32_t* k = cache_.block(task_.segment_index, task_.kv_head, block);
    tiles_.multiply({.a = q_,
                     .a_stride = cache_.k_dim,
                     .b = k + begin,
                     .b_stride = kTileKeys,
                     .c = scores_,
                     .c_stride = kTileKeys,
                     .rows = rows_,
                     .columns = end - begin,
                     .steps = cache_.k_dim,
                     .start = is_capped ? nullptr : starts_,
                     .start_stride = kTileParts});
    const int64_t first = block * kTileKeys + begin;
    for (int64_t row = 0; row < queries_.count(); ++row) {
      float* scores = scores_ + row * kTileKeys;
      if (is_capped) cap(scores, end - begin, row);
      if (first < first_[row] || first + end - begin - 1 > last_[row])
        hide(scores, first, end - begin, row);
      soften(scores, end - begin, row);
    }
    tiles_.multiply({.a = weights_,
                     .a_stride = kTileKeys,
                     .b = k + cache_.k_size() + begin / 2 * cache_.v_dim,
                     .b_stride = cache_.v_dim,
                     .c = out_,
                     .c_stride = cache_.v_dim,
                     .rows = rows_,
                     .columns = cache_.v_dim,
                     .steps = end - begin,
                     .accumulate = true});
  }

  /// Fractions of the softcap become scores.
  void cap(float* scores, int64_t keys, int64_t row) const {
    const VF cap = set(args_.softcap * queries_.kLog2e), start = set(starts_[row * kTileParts]);
    for (int64_t key = 0; key < keys; key += kLanes)
      hn::Store(hn::MulAdd(cap, tanh(hn::Load(DF(), scores + key)), start), DF(), scores + key);
  }

  /// -infinity where the query does not see a key; first: the first of them.
  void hide(float* scores, int64_t first, int64_t keys, int64_t row) const {
    const VF hidden = set(-std::numeric_limits<float>::infinity());
    const VI begin = set_int(first_[row]), last = set_int(last_[row]);
    VI index = hn::Add(hn::Load(DI(), kLaneNumbers), set_int(static_cast<int32_t>(first)));
    for (int64_t key = 0; key < keys; key += kLanes, index = hn::Add(index, set_int(kLanes))) {
      const auto outside = hn::Or(hn::Lt(index, begin), hn::Gt(index, last));
      hn::Store(hn::IfThenElse(hn::RebindMask(DF(), outside), hidden, hn::Load(DF(), scores + key)),
                DF(), scores + key);
    }
  }

  /// Turns the scores of a query into weights.
  HWY_INLINE void soften(const float* scores, int64_t keys, int64_t row) {
    VF largest = hn::Load(DF(), scores);
    for (int64_t key = kLanes; key < keys; key += kLanes)
      largest = hn::Max(largest, hn::Load(DF(), scores + key));
    bool moves = !hn::AllFalse(DF(), hn::Gt(largest, set(kReach)));
    if (!seen_[row] && hn::AllFalse(DF(), hn::Gt(largest, set(-kReach)))) {
      // The first keys that are seen may all lie far below.
      moves = !hn::AllFalse(DF(), hn::Gt(largest, set(std::numeric_limits<float>::lowest())));
    } else {
      seen_[row] = 1;
    }
    moves ? weigh<true>(scores, keys, row, move_reference(largest, row))
          : weigh<false>(scores, keys, row, 0.0f);
  }

  /// By how far. What was summed before is corrected.
  HWY_NOINLINE float move_reference(VF scores, int64_t row) {
    const float by = hn::GetLane(hn::MaxOfLanes(DF(), scores));
    float* start = starts_ + row * kTileParts;
    std::fill_n(start, kTileParts, start[0] - by);
    if (by > 0.0f) {  // else nothing was summed
      const VF correction = exp2_of_negative(set(-by));
      multiply_by(correction, sums_ + row * kTileParts, kTileParts);
      multiply_by(correction, out_ + row * cache_.v_dim, cache_.v_dim);
    }
    seen_[row] = 1;
    return by;
  }
  static void multiply_by(VF factor, float* x, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes)
      hn::Store(hn::Mul(factor, hn::Load(DF(), x + i)), DF(), x + i);
  }

  template <bool kMoved>
  HWY_INLINE void weigh(const float* scores, int64_t keys, int64_t row, float by) {
    constexpr int64_t kVectors = kTileParts / kLanes;  // of partial sums
    const VF moved = set(by);
    const auto weight_at = [&](int64_t key) HWY_ATTR {
      const VF score = hn::Load(DF(), scores + key);
      return weight_of(kMoved ? hn::Sub(score, moved) : score);
    };
    VF sums[kVectors];
    for (int64_t i = 0; i < kVectors; ++i)
      sums[i] = hn::Load(DF(), sums_ + row * kTileParts + i * kLanes);
    BF16* out = weights_ + row * kTileKeys;
    for (int64_t key = 0; key < keys; key += 2 * kTileParts)
      for (int64_t i = 0; i<kVectors; i += kVectors> 1 ? 2 : 1) {
        if constexpr (kVectors == 1) {
          const VF low = weight_at(key), high = weight_at(key + kLanes);
          store_cut(low, high, out + key);
          sums[0] = hn::Add(sums[0], hn::Add(low, high));
        } else {
          for (int64_t half = 0; half < 2; ++half) {
            const int64_t at = key + half * kTileParts + i * kLanes;
            const VF low = weight_at(at), high = weight_at(at + kLanes);
            store_cut(low, high, out + at);
            sums[i] = hn::Add(sums[i], low);
            sums[i + 1] = hn::Add(sums[i + 1], high);
          }
        }
      }
    for (int64_t i = 0; i < kVectors; ++i)
      hn::Store(sums[i], DF(), sums_ + row * kTileParts + i * kLanes);
  }

  void store_results() {
    for (int64_t row = 0; row < queries_.count(); ++row) {
      float sum = 0.0f;
      for (int64_t i = 0; i < kTileParts; ++i) sum += sums_[row * kTileParts + i];
      const float factor = scale_of(args_.v_scales) * kCutLoss / sum;
      multiply_by(set(factor), out_ + row * cache_.v_dim, cache_.v_dim);
      queries_.store(row, out_ + row * cache_.v_dim);
    }
  }

  const AttentionArgs& args_;
  const AttentionTask& task_;
  const TiledCache& cache_;
  const TileSession& tiles_;
  const TaskQueries queries_;
  const int64_t rows_;      ///< queries in whole tiles
  float* out_;              ///< [rows, v_dim]
  float* scores_;           ///< [rows, kTileKeys], relative to the references
  float *starts_, *sums_;   ///< [rows, kTileParts]: references, negative, and partial sums
  BF16 *weights_, *q_;      ///< [rows, kTileKeys] and [rows, k_dim]
  int32_t *first_, *last_;  ///< [queries]: keys seen
  int32_t* seen_;           ///< [rows]: a key or a sink was
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
        uint32_t* data = cache.block(static_cast<int64_t>(i), head, first / kTileKeys);
        blocks.push_back({.segment = &segment,
                          .kv_head = head,
                          .first_key = first,
                          .keys = std::min(kTileKeys, segment.kv_count - first),
                          .k = data,
                          .v = data + cache.k_size()});
      }
  }
  return blocks;
}

}  // namespace

void CpuBackend::attention_in_tiles(const AttentionArgs& args) {
  TiledCache cache(args);
  cache.data = tiled_cache_.get<uint32_t>(cache.blocks() * cache.block_size());
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
