#include <cmath>
#include <numeric>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/score_rows.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/cpu/tiled_cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_tiles.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention-inl.h"

// Attention with products of bfloat16. K and V are packed once for all queries, in blocks of keys
// and in the pairs that tile instructions read. FP8 codes are exact in bfloat16, so their scales
// multiply the query and the result. Scores are exponents, so the query is kept as two parts: a
// bfloat16 and its remainder, as bytes where ScoreRows multiplies it. If bfloat16 holds the cache's
// elements exactly, softmax weights are truncated to one part and summed truncated; for other
// caches K, V and the weights have two parts too, and products of two remainders are omitted. A
// query is a row; its sums run along the keys in an order that depends only on the key's number.
#ifndef KVCAL_KERNELS_CPU_ATTENTION_TILES_ONCE
#define KVCAL_KERNELS_CPU_ATTENTION_TILES_ONCE
namespace kvcal::cpu {

/// Queries of a task.
constexpr int64_t kTileQueries = 64;
/// Partial sums of a query, and the width of its row of references.
constexpr int64_t kTileParts = 16;

/// Floats of working memory.
inline int64_t tile_attention_scratch(const TiledCache& cache) {
  return (cache.k_dim + cache.v_dim + kTileKeys * 2 + 2 * kTileParts + 5) * kTileQueries +
         ScoreRows::kRows * kTileParts;
}

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

HWY_ALIGN constexpr int32_t kLaneNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/// One task: its queries against all visible keys. Scores are relative to a reference of each
/// query, which moves to the maximum only when that is far from it: weights have as many digits
/// everywhere, and earlier sums rarely need a correction.
class AttendInTiles {
 public:
  AttendInTiles(const AttentionArgs& args, const AttentionTask& task, const TiledCache& cache,
                const TileSession& tiles, float* scratch)
      : args_(args),
        task_(task),
        cache_(cache),
        tiles_(tiles),
        queries_(args, task),
        rows_(round_up(queries_.count(), kTileRows)) {
    const auto take = [&](int64_t count) { return std::exchange(scratch, scratch + count); };
    out_ = take(cache.v_dim * kTileQueries);
    scores_ = take(kTileKeys * kTileQueries);
    starts_ = take(kTileParts * kTileQueries);
    sums_ = take(kTileParts * kTileQueries);
    weights_ = reinterpret_cast<BF16*>(take(kTileKeys * kTileQueries));
    q_ = reinterpret_cast<BF16*>(take(cache.k_dim * kTileQueries));
    seen_ = reinterpret_cast<int32_t*>(take(kTileQueries));
    first_ = reinterpret_cast<int32_t*>(take(kTileQueries));
    last_ = reinterpret_cast<int32_t*>(take(kTileQueries));
    rest_sums_ = reinterpret_cast<int32_t*>(take(kTileQueries));
    rest_scales_ = take(kTileQueries);
    sums_before_ = take(ScoreRows::kRows * kTileParts);
  }

  void run() {
    cache_.has_bytes ? load_queries_with_bytes() : load_queries();
    start_softmax();
    std::fill_n(out_, rows_ * cache_.v_dim, 0.0f);
    const int64_t begin = queries_.begin(), end = queries_.end();
    for (int64_t block = begin / kTileKeys; block * kTileKeys < end; ++block) {
      const int64_t first = block * kTileKeys;
      if (cache_.has_bytes) {
        for (int64_t row = 0; row < queries_.count(); row += ScoreRows::kRows)
          add_keys_to(row, block);
        continue;
      }
      add_keys(block, std::max<int64_t>(0, begin - first) / kTileColumns * kTileColumns,
               round_up(std::min(kTileKeys, end - first), kTileColumns));
    }
    store_results();
  }
  const Magnitudes& seen() const { return queries_.seen(); }

 private:
  /// Largest distance, in powers of two, of the maximum from the reference. Sums of weights times
  /// values stay finite for values below 2^50, and weights that vanish are 2^-66 of the largest.
  static constexpr float kReach = 60.0f;

  /// Loads the query truncated to bfloat16, then its remainder, each [rows, k_dim].
  void load_queries() {
    const int64_t head_dim = args_.head_dim;
    const VF factor = set(queries_.score_factor() * queries_.scale_of(args_.k_scales));
    for (int64_t row = 0; row < rows_; ++row) {
      const float* from = queries_.query(row);
      BF16* to = q_ + row * cache_.k_dim;
      BF16* rest = to + rows_ * cache_.k_dim;
      int64_t d = 0;
      for (; d + 2 * kLanes <= head_dim; d += 2 * kLanes)
        store_query(hn::Mul(factor, load_as_float(from + d)),
                    hn::Mul(factor, load_as_float(from + d + kLanes)), to + d, rest + d);
      for (; d < cache_.k_dim; d += 2 * kLanes) {
        float tail[2 * kLanes] = {};
        if (d < head_dim) std::copy(from + d, from + head_dim, tail);
        store_query(hn::Mul(factor, load_as_float(tail)),
                    hn::Mul(factor, load_as_float(tail + kLanes)), to + d, rest + d);
      }
    }
  }
  HWY_INLINE static void store_query(VF a, VF b, BF16* out, BF16* rest) {
    store_cut(a, b, out);
    store_cut(hn::Sub(a, cut(a)), hn::Sub(b, cut(b)), rest);
  }

  /// Loads the query rounded to bfloat16, then what that took from it, as bytes.
  void load_queries_with_bytes() {
    const float factor = queries_.score_factor() * queries_.scale_of(args_.k_scales);
    for (int64_t row = 0; row < rows_; ++row)
      round_query(queries_.query(row), args_.head_dim, factor, cache_.k_dim,
                  {.q = q_ + row * cache_.k_dim,
                   .rest = rest_of(row),
                   .scale = rest_scales_ + row,
                   .sum = rest_sums_ + row,
                   .exact = scores_});
  }
  /// [k_dim]
  int8_t* rest_of(int64_t row) const {
    return reinterpret_cast<int8_t*>(q_ + rows_ * cache_.k_dim) + row * cache_.k_dim;
  }

  /// Initial softmax state: only the sink. A sink far below must not become the reference, or
  /// scores would lose their digits.
  void start_softmax() {
    std::fill_n(sums_, rows_ * kTileParts, 0.0f);
    for (int64_t row = 0; row < rows_; ++row) {
      first_[row] = queries_.first_key(row);
      last_[row] = queries_.last_key(row);
      seen_[row] = queries_.has_sinks() && queries_.sink(row) > -kReach;
      if (queries_.has_sinks())
        sums_[row * kTileParts] = seen_[row] ? 1.0f : std::exp2(queries_.sink(row));
      std::fill_n(starts_ + row * kTileParts, kTileParts, seen_[row] ? -queries_.sink(row) : 0.0f);
    }
  }

  /// Adds keys [begin, end) of a block to sums and references.
  void add_keys(int64_t block, int64_t begin, int64_t end) {
    const bool is_capped = args_.softcap > 0.0f;
    const auto tiles = cache_.block(task_.segment_index, task_.kv_head, block);
    TileProduct scores{.a = q_,
                       .a_stride = cache_.k_dim,
                       .b = tiles.k + begin,
                       .b_stride = tiles.keys,
                       .c = scores_,
                       .c_stride = kTileKeys,
                       .rows = rows_,
                       .columns = end - begin,
                       .steps = cache_.k_dim,
                       .start = is_capped ? nullptr : starts_,
                       .start_stride = kTileParts};
    multiply_parts(scores, rows_ * cache_.k_dim, tiles.k_part);
    const int64_t first = block * kTileKeys + begin;
    for (int64_t row = 0; row < queries_.count(); ++row) {
      float* scores = scores_ + row * kTileKeys;
      if (is_capped) cap(scores, end - begin, row);
      if (first < first_[row] || first + end - begin - 1 > last_[row])
        hide(scores, first, end - begin, row);
      if (args_.selection.words) queries_.hide_unselected(row, first, end - begin, scores, 1);
      soften(scores, end - begin, row);
    }
    const TileProduct results{.a = weights_,
                              .a_stride = kTileKeys,
                              .b = tiles.v + begin / 2 * cache_.v_dim,
                              .b_stride = cache_.v_dim,
                              .c = out_,
                              .c_stride = cache_.v_dim,
                              .rows = rows_,
                              .columns = cache_.v_dim,
                              .steps = end - begin,
                              .accumulate = true};
    multiply_parts(results, cache_.parts > 1 ? rows_ * kTileKeys : 0, tiles.v_part);
  }

  /// Adds the keys of a block to sums and results of ScoreRows::kRows queries from `row` on.
  void add_keys_to(int64_t row, int64_t block) {
    const int64_t origin = block * kTileKeys;
    const int64_t end_row = std::min(row + ScoreRows::kRows, queries_.count());
    const int64_t begin = std::max<int64_t>(0, first_[row] - origin) / kTileColumns * kTileColumns;
    const int64_t end = round_up(std::min(kTileKeys, last_[end_row - 1] + 1 - origin), kTileParts);
    if (end <= begin) return;
    const auto tiles = cache_.block(task_.segment_index, task_.kv_head, block);
    const ScoreRows rows{.k_dim = cache_.k_dim,
                         .q = q_ + row * cache_.k_dim,
                         .q_rest = rest_of(row),
                         .q_scales = rest_scales_ + row,
                         .q_sums = rest_sums_ + row,
                         .starts = starts_ + row * kTileParts,
                         .keys = end - begin,
                         .k_stride = tiles.keys,
                         .k = tiles.k + begin,
                         .k_bytes = tiles.k_bytes + begin,
                         .k_scales = tiles.k_scales + begin,
                         .scores = scores_ + row * kTileKeys};
    start_scores(rows);
    std::copy_n(sums_ + row * kTileParts, ScoreRows::kRows * kTileParts, sums_before_);
    weigh_started(rows,
                  {.first = first_ + row,
                   .last = last_ + row,
                   .origin = static_cast<int32_t>(origin + begin)},
                  sums_ + row * kTileParts, weights_ + row * kTileKeys);
    check_sums(rows, row, end_row, origin + begin);
    add_values({.weights = weights_ + row * kTileKeys,
                .keys = rows.keys,
                .v = tiles.v + begin / 2 * cache_.v_dim,
                .v_dim = cache_.v_dim,
                .out = out_ + row * cache_.v_dim});
  }

  /// Weighs again, by their largest score, the keys of rows whose sums show a maximum far above the
  /// reference, or none near it so far. first: the first key.
  void check_sums(const ScoreRows& rows, int64_t row, int64_t end_row, int64_t first) {
    const int64_t keys = round_up(rows.keys, kTileColumns);
    bool has_scores = false;
    for (int64_t i = row; i < end_row; ++i) {
      bool is_far = false;
      for (int64_t part = 0; part < kTileParts; part += kLanes) {
        const VF sums = hn::Load(DF(), sums_ + i * kTileParts + part);
        if (!hn::AllTrue(DF(), hn::Le(sums, set(0x1p-60f)))) seen_[i] = 1;  // NaN, too
        is_far = is_far || !hn::AllFalse(DF(), hn::Gt(sums, set(0x1p60f)));
      }
      if (seen_[i] && !is_far) continue;
      if (!has_scores) complete_scores(rows, keys);
      has_scores = true;
      std::copy_n(sums_before_ + (i - row) * kTileParts, kTileParts, sums_ + i * kTileParts);
      float* scores = scores_ + i * kTileKeys;
      if (first < first_[i] || first + keys - 1 > last_[i]) hide(scores, first, keys, i);
      soften(scores, keys, i);
    }
  }
  void complete_scores(const ScoreRows& rows, int64_t keys) const {
    tiles_.multiply({.a = rows.q,
                     .a_stride = rows.k_dim,
                     .b = rows.k,
                     .b_stride = rows.k_stride,
                     .c = rows.scores,
                     .c_stride = kTileKeys,
                     .rows = ScoreRows::kRows,
                     .columns = keys,
                     .steps = rows.k_dim,
                     .accumulate = true});
  }

  /// Multiplies a and its remainders, a_rest elements behind it (0: none), with b and, in a cache
  /// of two parts, with b's remainders, b_rest pairs behind it; omits the product of two
  /// remainders.
  void multiply_parts(TileProduct product, int64_t a_rest, int64_t b_rest) const {
    product.a_rest = a_rest > 0 ? product.a + a_rest : nullptr;
    tiles_.multiply(product);
    if (cache_.parts == 1) return;
    product.a_rest = nullptr;
    product.b += b_rest;
    product.accumulate = true;
    tiles_.multiply(product);
  }

  /// Converts fractions of the softcap to scores.
  void cap(float* scores, int64_t keys, int64_t row) const {
    const VF cap = set(args_.softcap * queries_.kLog2e), start = set(starts_[row * kTileParts]);
    for (int64_t key = 0; key < keys; key += kLanes)
      hn::Store(hn::MulAdd(cap, tanh(hn::Load(DF(), scores + key)), start), DF(), scores + key);
  }

  /// Sets scores to -infinity where the query does not see the key; first: the first of them.
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

  /// Converts the scores of a query to softmax weights.
  HWY_INLINE void soften(const float* scores, int64_t keys, int64_t row) {
    VF largest = hn::Load(DF(), scores);
    for (int64_t key = kLanes; key < keys; key += kLanes)
      largest = hn::Max(largest, hn::Load(DF(), scores + key));
    bool moves = !hn::AllFalse(DF(), hn::Gt(largest, set(kReach)));
    if (!seen_[row] && hn::AllFalse(DF(), hn::Gt(largest, set(-kReach)))) {
      // The first visible keys may all be far below.
      moves = !hn::AllFalse(DF(), hn::Gt(largest, set(std::numeric_limits<float>::lowest())));
    } else {
      seen_[row] = 1;
    }
    const float by = moves ? move_reference(largest, row) : 0.0f;
    if (cache_.parts > 1) return weigh<true, true>(scores, keys, row, by);
    moves ? weigh<true, false>(scores, keys, row, by) : weigh<false, false>(scores, keys, row, by);
  }

  /// Moves the reference and corrects earlier sums. Returns the distance.
  HWY_NOINLINE float move_reference(VF scores, int64_t row) {
    const float by = hn::GetLane(hn::MaxOfLanes(DF(), scores));
    float* start = starts_ + row * kTileParts;
    std::fill_n(start, kTileParts, start[0] - by);
    if (!seen_[row] && queries_.has_sinks()) {  // nothing else was summed
      sums_[row * kTileParts] = std::exp2(queries_.sink(row) - by);
    } else if (by > 0.0f) {
      const VF correction = exp2_of_negative(set(-by));
      multiply_by(correction, sums_ + row * kTileParts, kTileParts);
      multiply_by(correction, out_ + row * cache_.v_dim, cache_.v_dim);
    }
    seen_[row] = 1;
    return by;
  }

  /// by: distance that the reference moved. With kTwoParts the remainders of weights are kept too.
  template <bool kMoved, bool kTwoParts>
  HWY_INLINE void weigh(const float* scores, int64_t keys, int64_t row, float by) {
    constexpr int64_t kVectors = kTileParts / kLanes;  // of partial sums
    const VF moved = set(by);
    VF sums[kVectors];
    for (int64_t i = 0; i < kVectors; ++i)
      sums[i] = hn::Load(DF(), sums_ + row * kTileParts + i * kLanes);
    const auto weight_at = [&](int64_t key, VF& sum) HWY_ATTR {
      const VF score = hn::Load(DF(), scores + key);
      const VF weight = weight_of(kMoved ? hn::Sub(score, moved) : score);
      sum = hn::Add(sum, kTwoParts ? weight : cut(weight));
      return weight;
    };
    BF16* out = weights_ + row * kTileKeys;
    for (int64_t key = 0; key < keys; key += 2 * kLanes) {
      // Keys that are kTileParts apart share a partial sum.
      VF& sum = sums[key / kLanes % kVectors];
      VF& next_sum = sums[(key / kLanes + 1) % kVectors];
      const VF low = weight_at(key, sum), high = weight_at(key + kLanes, next_sum);
      store_cut(low, high, out + key);
      if (kTwoParts)
        store_cut(hn::Sub(low, cut(low)), hn::Sub(high, cut(high)), out + rows_ * kTileKeys + key);
    }
    for (int64_t i = 0; i < kVectors; ++i)
      hn::Store(sums[i], DF(), sums_ + row * kTileParts + i * kLanes);
  }

  float sum_of(const float* parts) const {
    if (cache_.has_bytes && kLanes == kTileParts)
      return hn::GetLane(hn::SumOfLanes(DF(), hn::Load(DF(), parts)));
    return std::accumulate(parts, parts + kTileParts, 0.0f);
  }

  void store_results() {
    for (int64_t row = 0; row < queries_.count(); ++row) {
      const float sum = sum_of(sums_ + row * kTileParts);
      const float factor = queries_.scale_of(args_.v_scales) / sum;
      multiply_by(set(factor), out_ + row * cache_.v_dim, cache_.v_dim);
      queries_.store(row, out_ + row * cache_.v_dim);
    }
  }

  const AttentionArgs& args_;
  const AttentionTask& task_;
  const TiledCache& cache_;
  const TileSession& tiles_;
  TaskQueries queries_;
  const int64_t rows_;      ///< queries in whole tiles
  float* out_;              ///< [rows, v_dim]
  float* scores_;           ///< [rows, kTileKeys], relative to the references
  float *starts_, *sums_;   ///< [rows, kTileParts]: references, negative, and partial sums
  BF16 *weights_, *q_;      ///< [2, rows, kTileKeys] and [2, rows, k_dim]
  int32_t *first_, *last_;  ///< [queries]: keys seen
  int32_t* seen_;           ///< [rows]: a key or a sink was
  int32_t* rest_sums_;      ///< [rows], with rest_scales_ of rest_of
  float* rest_scales_;
  float* sums_before_;  ///< [ScoreRows::kRows, kTileParts]
};

void attend_in_tiles(const AttentionArgs& args, const AttentionTask& task, const TiledCache& cache,
                     const TileSession& tiles, float* scratch) {
  AttendInTiles attend(args, task, cache, tiles, scratch);
  attend.run();
  fold_into(args.seen, attend.seen());
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(attend_in_tiles);

/// Upper bound; chips without tile instructions need less.
uint64_t CpuBackend::attention_bytes_per_key(const AttentionArgs& args) const {
  if (args.product_type != ComputeType::kBFloat16) return 0;
  const TiledCache cache(args);
  return static_cast<uint64_t>(cache.kv_heads * cache.key_size()) * sizeof(uint32_t);
}

void CpuBackend::attention_in_tiles(const AttentionArgs& args) {
  TiledCache cache(args);
  cache.data = tiled_cache_.get<uint32_t>(cache.size());
  const std::vector<CacheBlock> blocks = cache_blocks(args, cache);
  pool_.parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t index, int thread) {
    lay_out(args, blocks[static_cast<size_t>(index)], cache,
            scratch_[static_cast<size_t>(thread)].get<float>(layout_scratch(cache)));
  });
  const std::vector<AttentionTask> tasks =
      cut_attention(args, cache.is_for_amx ? kAmxQueries : kTileQueries);
  pool_.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t index, int thread) {
    const TileSession tiles(tile_instructions());
    const AttentionTask& task = tasks[static_cast<size_t>(index)];
    Scratch& scratch = scratch_[static_cast<size_t>(thread)];
    if (cache.is_for_amx)
      return attend_by_amx(args, task, cache, scratch.get<float>(amx_attention_scratch(cache)));
    HWY_DYNAMIC_DISPATCH(attend_in_tiles)
    (args, task, cache, tiles, scratch.get<float>(tile_attention_scratch(cache)));
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
