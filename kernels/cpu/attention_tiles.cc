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
  // Rows of bfloat16, their pairs, and the pairs turned.
  return cache.v_dim * kTileColumns / 2 + cache.v_dim * kTileColumns;
}
inline int64_t tile_attention_scratch(const TiledCache& cache) {
  return (cache.k_dim + cache.v_dim + kTileKeys * 3 / 2 + 3) * kTileQueries + 4 * cache.v_dim;
}

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Weights are cut to bfloat16, not rounded, and so are made larger beforehand by what cutting
/// takes off on average: 2^-8 · (1/2) / ln 2 of a value whose logarithm is evenly spread. Their sum
/// is larger by the same.
constexpr float kCutLoss = 1.0f + 0.00281782f;

/// The upper halves of two numbers, the first's in the low half.
HWY_INLINE VU cut_pair(VF low, VF high) {
  const VU upper = hn::Set(DU(), 0xffff0000u);
  return hn::Or(hn::ShiftRight<16>(hn::BitCast(DU(), low)),
                hn::And(hn::BitCast(DU(), high), upper));
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

/// Pairs of bfloat16 are moved as if they were float32.
HWY_INLINE const float* as_columns(const uint32_t* pairs) {
  return reinterpret_cast<const float*>(pairs);
}

/// kTileColumns rows of V become columns of out [v_dim, kTileKeys].
void lay_out_values(const KvRows& rows, int64_t v_dim, float* scratch, BF16* out) {
  constexpr int64_t kPairs = kTileColumns / 2;
  auto* values = reinterpret_cast<BF16*>(scratch);                      // [kTileColumns, v_dim]
  auto* pairs = reinterpret_cast<uint32_t*>(scratch + v_dim * kPairs);  // [kPairs, v_dim]
  float* turned = scratch + 2 * v_dim * kPairs;                         // [v_dim, kPairs]
  std::fill_n(values, kTileColumns * v_dim, BF16{});
  read_kv(rows, values, v_dim);
  for (int64_t pair = 0; pair < kPairs; ++pair) {
    const uint16_t* low = &values[2 * pair * v_dim].bits;
    const uint16_t* high = low + v_dim;
    for (int64_t d = 0; d < v_dim; d += kLanes)
      hn::StoreU(hn::Or(hn::PromoteTo(DU(), hn::LoadU(DU16(), low + d)),
                        hn::ShiftLeft<16>(hn::PromoteTo(DU(), hn::LoadU(DU16(), high + d)))),
                 DU(), pairs + pair * v_dim + d);
  }
  for (int64_t pair = 0; pair < kPairs; pair += 4) {
    const float* four[4];
    for (int64_t i = 0; i < 4; ++i) four[i] = as_columns(pairs + (pair + i) * v_dim);
    rows_to_columns(four, v_dim, turned + pair, kPairs);
  }
  for (int64_t d = 0; d < v_dim; ++d)
    std::memcpy(static_cast<void*>(out + d * kTileKeys), turned + d * kPairs,
                kTileColumns * sizeof(BF16));
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

/// One task: its queries against all keys they see. Scores are taken relative to a reference of
/// each query, which follows the largest only when that is far above it: a weight then has as many
/// digits as below, and what was summed need not be corrected.
class AttendInTiles {
 public:
  AttendInTiles(const AttentionArgs& args, const AttentionTask& task, const TiledCache& cache,
                const TileSession& tiles, float* scratch)
      : args_(args), task_(task), cache_(cache), tiles_(tiles), lanes_(args, task) {
    q_ = reinterpret_cast<uint32_t*>(take(scratch, cache.k_dim / 2 * kTileQueries));
    query_rows_ = reinterpret_cast<BF16*>(take(scratch, cache.k_dim / 2 * kTileQueries));
    out_ = take(scratch, cache.v_dim * kTileQueries);
    scores_ = take(scratch, kTileKeys * kTileQueries);
    weights_ = reinterpret_cast<uint32_t*>(take(scratch, kTileKeys / 2 * kTileQueries));
    start_ = take(scratch, kTileQueries);
    sum_ = take(scratch, kTileQueries);
    correction_ = take(scratch, kTileQueries);
    rows_ = take(scratch, 4 * cache.v_dim);
  }

  void run() {
    load_queries();
    start_softmax();
    std::fill_n(out_, cache_.v_dim * kTileQueries, 0.0f);
    const int64_t begin = lanes_.begin(), end = lanes_.end();
    for (int64_t block = begin / kTileKeys; block * kTileKeys < end; ++block) {
      const int64_t first = block * kTileKeys;
      add_keys(block, std::max<int64_t>(0, begin - first) / kTileColumns * kTileColumns,
               round_up_to(std::min(kTileKeys, end - first), kTileColumns));
    }
    for (int64_t lane = 0; lane < kTileQueries; ++lane)
      sum_[lane] = scale_of(args_.v_scales) * kCutLoss / sum_[lane];
    lanes_.store_results(out_, sum_, rows_);
  }

 private:
  static constexpr int64_t kStrip = 2;
  static_assert(kTileQueries % (kStrip * kLanes) == 0);
  /// How far, in powers of two, the largest score may lie above the reference.
  static constexpr float kHeadroom = 8.0f;

  static float* take(float*& scratch, int64_t count) {
    float* part = scratch;
    scratch += count;
    return part;
  }
  float scale_of(const float* scales) const {
    return is_fp8(args_.kv_dtype) ? scales[task_.kv_head] : 1.0f;
  }

  void load_queries() {
    const int64_t head_dim = args_.head_dim;
    const VF factor = set(lanes_.score_factor() * scale_of(args_.k_scales));
    for (int64_t lane = 0; lane < kTileQueries; ++lane) {
      const float* from = lanes_.query(lane);
      BF16* to = query_rows_ + lane * cache_.k_dim;
      int64_t d = 0;
      for (; d + kLanes <= head_dim; d += kLanes)
        store_from_float(hn::Mul(factor, load_as_float(from + d)), to + d);
      if (d < head_dim)
        store_part(hn::Mul(factor, load_part(from + d, head_dim - d)), to + d, head_dim - d);
      std::fill_n(to + head_dim, cache_.k_dim - head_dim, BF16{});
    }
    const int64_t pairs = cache_.k_dim / 2;
    const float* rows = reinterpret_cast<const float*>(query_rows_);
    for (int64_t lane = 0; lane < kTileQueries; lane += 4) {
      const float* four[4];
      for (int64_t i = 0; i < 4; ++i) four[i] = rows + (lane + i) * pairs;
      rows_to_columns(four, pairs, reinterpret_cast<float*>(q_) + lane, kTileQueries);
    }
  }

  /// Nothing seen yet but the sink.
  void start_softmax() {
    for (int64_t lane = 0; lane < kTileQueries; ++lane) {
      start_[lane] = lanes_.has_sinks() ? -lanes_.sink(lane) : 0.0f;
      sum_[lane] = lanes_.has_sinks() ? kCutLoss : 0.0f;
    }
  }

  /// Folds keys [begin, end) of a block into sums and references.
  void add_keys(int64_t block, int64_t begin, int64_t end) {
    const bool is_capped = args_.softcap > 0.0f;
    const BF16* k = cache_.block(task_.segment_index, task_.kv_head, block);
    tiles_.multiply({.a = k + begin * cache_.k_dim,
                     .a_stride = cache_.k_dim,
                     .b = q_,
                     .b_stride = kTileQueries,
                     .c = scores_,
                     .c_stride = kTileQueries,
                     .rows = end - begin,
                     .columns = kTileQueries,
                     .steps = cache_.k_dim,
                     .start = is_capped ? nullptr : start_});
    if (is_capped) {
      lanes_.cap_scores(end - begin, scores_);
      take_references(end - begin);
    }
    const int64_t first = block * kTileKeys;
    lanes_.hide_keys(first + begin, first + end, scores_);
    bool moved = false;
    for (int64_t lane = 0; lane < kTileQueries; lane += kStrip * kLanes)
      moved |= soften(end - begin, lane);
    if (moved) correct();
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

  void take_references(int64_t keys) {
    for (int64_t key = 0; key < keys; ++key)
      for (int64_t lane = 0; lane < kTileQueries; lane += kLanes) {
        float* score = scores_ + key * kTileQueries + lane;
        hn::Store(hn::Add(hn::Load(DF(), score), hn::Load(DF(), start_ + lane)), DF(), score);
      }
  }

  /// Turns the scores of a strip of queries into pairs of weights; true where a reference moved, so
  /// that what was summed before must be corrected.
  bool soften(int64_t keys, int64_t lane) {
    VF by[kStrip];
    const bool moved = move_references(keys, lane, by);
    moved ? weigh<true>(keys, lane, by) : weigh<false>(keys, lane, by);
    return moved;
  }

  /// by: how far.
  HWY_INLINE bool move_references(int64_t keys, int64_t lane, VF* by) {
    const VF lowest = set(std::numeric_limits<float>::lowest());
    const float* scores = scores_ + lane;
    VF largest[kStrip];
    for (int64_t i = 0; i < kStrip; ++i) largest[i] = lowest;
    for (int64_t key = 0; key < keys; ++key)
      for (int64_t i = 0; i < kStrip; ++i)
        largest[i] = hn::Max(largest[i], hn::Load(DF(), scores + key * kTileQueries + i * kLanes));
    bool moved = false;
    for (int64_t i = 0; i < kStrip; ++i) {
      const int64_t at = lane + i * kLanes;
      const VF sum = hn::Load(DF(), sum_ + at);
      // The first keys decide the reference, whatever they are.
      const auto is_first = hn::Eq(sum, set(0.0f));
      const auto moves = hn::Gt(largest[i], hn::IfThenElse(is_first, lowest, set(kHeadroom)));
      moved |= !hn::AllFalse(DF(), moves);
      by[i] = hn::IfThenElseZero(moves, largest[i]);
      const VF correction =
          hn::IfThenElse(hn::AndNot(is_first, moves), exp2_of_negative(hn::Neg(by[i])), set(1.0f));
      hn::Store(correction, DF(), correction_ + at);
      hn::Store(hn::Mul(sum, correction), DF(), sum_ + at);
      hn::Store(hn::Sub(hn::Load(DF(), start_ + at), by[i]), DF(), start_ + at);
    }
    return moved;
  }

  template <bool kMoved>
  HWY_INLINE void weigh(int64_t keys, int64_t lane, const VF* by) {
    VF sums[kStrip];
    for (int64_t i = 0; i < kStrip; ++i) sums[i] = hn::Load(DF(), sum_ + lane + i * kLanes);
    for (int64_t key = 0; key < keys; key += 2)
      for (int64_t i = 0; i < kStrip; ++i) {
        const float* score = scores_ + key * kTileQueries + lane + i * kLanes;
        VF low = hn::Load(DF(), score), high = hn::Load(DF(), score + kTileQueries);
        if (kMoved) {
          low = hn::Sub(low, by[i]);
          high = hn::Sub(high, by[i]);
        }
        low = weight_of(low);
        high = weight_of(high);
        hn::Store(cut_pair(low, high), DU(), weights_ + key / 2 * kTileQueries + lane + i * kLanes);
        sums[i] = hn::Add(sums[i], hn::Add(low, high));
      }
    for (int64_t i = 0; i < kStrip; ++i) hn::Store(sums[i], DF(), sum_ + lane + i * kLanes);
  }

  void correct() {
    for (int64_t d = 0; d < cache_.v_dim; ++d)
      for (int64_t lane = 0; lane < kTileQueries; lane += kLanes) {
        float* sum = out_ + d * kTileQueries + lane;
        hn::Store(hn::Mul(hn::Load(DF(), sum), hn::Load(DF(), correction_ + lane)), DF(), sum);
      }
  }

  const AttentionArgs& args_;
  const AttentionTask& task_;
  const TiledCache& cache_;
  const TileSession& tiles_;
  AttentionLanes<kTileQueries> lanes_;
  uint32_t* q_;               ///< [k_dim / 2, kTileQueries] pairs
  BF16* query_rows_;          ///< [kTileQueries, k_dim]
  float* out_;                ///< [v_dim, kTileQueries]
  float* scores_;             ///< [kTileKeys, kTileQueries], relative to the references
  uint32_t* weights_;         ///< [kTileKeys / 2, kTileQueries] pairs
  float* start_;              ///< [kTileQueries]: the references, negative
  float *sum_, *correction_;  ///< [kTileQueries]
  float* rows_;               ///< [4, v_dim]
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
