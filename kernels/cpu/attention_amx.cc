#include <cmath>
#include <utility>

#include "kernels/cpu/amx_rows.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_amx.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention-inl.h"

// Attention by AMX with weights in fixed point. Queries of a task form groups of kAmxRows; a
// group's work is a sequence of chunks of kAmxKeys keys, whose scores are computed while those of
// the chunk before become weights. References, sums and rows are as in attention_tiles.cc.
HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

class AttendByAmx {
 public:
  AttendByAmx(const AttentionArgs& args, const AttentionTask& task, const TiledCache& cache,
              float* scratch)
      : args_(args), task_(task), cache_(cache), queries_(args, task) {
    const auto take = [&](int64_t count) { return std::exchange(scratch, scratch + count); };
    const int64_t groups = (queries_.count() + kAmxRows - 1) / kAmxRows;
    for (int64_t i = 0; i < groups; ++i) {
      Group& group = groups_[i];
      group.first_row = i * kAmxRows;
      group.rows = std::min(kAmxRows, queries_.count() - group.first_row);
      group.q = reinterpret_cast<BF16*>(take(cache.k_dim * kAmxRows));
      group.out = take(cache.v_dim * kAmxRows);
      for (float** sums : {&group.starts, &group.sums, &group.next}) *sums = take(kAmxRows * 16);
      start(group);
    }
    num_groups_ = groups;
    for (float*& scores : scores_) scores = take(kScores);
    again_ = take(kBlockChunks * kScores);
    weights_ = reinterpret_cast<BF16*>(take(kAmxRows * kTileKeys / 2));
    row_ = take(std::max(cache.k_dim, cache.v_dim));
  }

  void run() {
    // Groups take turns at a block of keys that only all of them read often enough from a cache.
    const int64_t keys = queries_.end() - queries_.begin();
    const int64_t together =
        keys * cache_.key_size() * static_cast<int64_t>(sizeof(uint32_t)) > kNearBytes ? num_groups_
                                                                                       : 1;
    for (int64_t first = 0; first < num_groups_; first += together) {
      for (int64_t i = first; i < first + together; ++i) load_queries(groups_[i]);
      for (int64_t block = queries_.begin() / kTileKeys; block * kTileKeys < queries_.end();
           ++block)
        for (int64_t i = first; i < first + together; ++i) add_keys(groups_[i], block);
    }
    if (pending_) {
      weigh(weights_of(*pending_));
      finish(nullptr);
    }
    for (int64_t i = 0; i < num_groups_; ++i) store_results(groups_[i]);
  }
  const Magnitudes& seen() const { return queries_.seen(); }

 private:
  static constexpr int64_t kBlockChunks = kTileKeys / kAmxKeys, kScores = kAmxRows * kAmxKeys;
  /// Sums of a row beyond 2^60 move its reference; those not yet beyond 2^-60, too.
  static constexpr float kReach = 60.0f;
  /// Keys and values that stay in the level 2 cache.
  static constexpr int64_t kNearBytes = int64_t{3} << 19;

  struct Group {
    int64_t first_row = 0, rows = 0;
    BF16* q = nullptr;                        ///< as in AmxScores
    float* out = nullptr;                     ///< as in AmxValues
    float* starts = nullptr;                  ///< [kAmxRows, 16]: kAmxBias less the reference
    float* sums = nullptr;                    ///< [kAmxRows, 16]
    float* next = nullptr;                    ///< sums with the block at hand
    uint32_t seen = 0;                        ///< rows whose reference is near their scores
    int32_t first[kAmxRows], last[kAmxRows];  ///< keys seen
    int32_t all_from = 0;                     ///< first and last key that every query sees
    int32_t all_to = std::numeric_limits<int32_t>::max();
  };
  /// A chunk whose scores are computed.
  struct Chunk {
    Group* group = nullptr;
    int64_t block = 0, index = 0;  ///< of the chunk in the block
    int64_t begin = 0, end = 0;    ///< chunks of the block that the group sees
    float* scores = nullptr;
    bool hides = false;
    uint32_t seen[kAmxRows];
  };

  void start(Group& group) {
    std::fill_n(group.out, cache_.v_dim * kAmxRows, 0.0f);
    std::fill_n(group.sums, kAmxRows * 16, 0.0f);
    for (int64_t row = 0; row < kAmxRows; ++row) {
      const int64_t query = group.first_row + std::min(row, group.rows - 1);
      group.first[row] = queries_.first_key(query);
      group.last[row] = queries_.last_key(query);
      group.all_from = std::max(group.all_from, group.first[row]);
      group.all_to = std::min(group.all_to, group.last[row]);
      const float sink = queries_.has_sinks() ? queries_.sink(query) : -2 * kReach;
      // A sink far below must not become the reference, or scores would lose their digits.
      const bool is_reference = sink > -kReach;
      if (is_reference) group.seen |= uint32_t{1} << row;
      if (queries_.has_sinks()) group.sums[row * 16] = is_reference ? 1.0f : std::exp2(sink);
      std::fill_n(group.starts + row * 16, 16,
                  is_reference ? kAmxBias - kAmxUnit * sink : kAmxBias);
    }
  }

  void load_queries(Group& group) {
    const VF factor = set(kAmxUnit * queries_.score_factor() * queries_.scale_of(args_.k_scales));
    const int64_t head_dim = args_.head_dim, k_dim = cache_.k_dim;
    std::fill_n(row_, k_dim, 0.0f);
    for (int64_t row = 0; row < kAmxRows; ++row) {
      const float* from = queries_.query(group.first_row + row);
      if (head_dim < k_dim) from = std::copy_n(from, head_dim, row_) - head_dim;
      BF16* to = group.q + row / 16 * k_dim * 32 + row % 16 * 32;
      for (int64_t d = 0; d < k_dim; d += 2 * kLanes) {
        const VF a = hn::Mul(factor, load_as_float(from + d));
        const VF b = hn::Mul(factor, load_as_float(from + d + kLanes));
        BF16* q = to + d / 32 * 1024 + d % 32;
        store_cut(a, b, q);
        store_cut(hn::Sub(a, cut(a)), hn::Sub(b, cut(b)), q + 512);
      }
    }
  }

  /// Adds the keys of a block to a group.
  void add_keys(Group& group, int64_t block) {
    const int64_t origin = block * kTileKeys;
    const int64_t begin = std::max<int64_t>(0, group.first[0] - origin) / kAmxKeys;
    const int64_t end = std::min<int64_t>(
        kBlockChunks, (group.last[group.rows - 1] - origin + kAmxKeys) / kAmxKeys);
    for (int64_t index = begin; index < end; ++index) {
      Chunk& chunk = chunks_[turn_];
      chunk.group = &group;
      chunk.block = block;
      chunk.index = index;
      chunk.begin = begin;
      chunk.end = end;
      chunk.scores = scores_[turn_];
      chunk.hides = !sees_all(group, block, index);
      for (int64_t row = 0; chunk.hides && row < kAmxRows; ++row)
        chunk.seen[row] = keys_seen(group, row, block, index);
      const AmxWeights weights = pending_ ? weights_of(*pending_) : AmxWeights{};
      score_and_weigh(scores_of(chunk, index, chunk.scores), pending_ ? &weights : nullptr);
      if (pending_) finish(&chunk);
      pending_ = &chunk;
      turn_ = 1 - turn_;
    }
  }

  static bool sees_all(const Group& group, int64_t block, int64_t index) {
    const int64_t first = block * kTileKeys + index * kAmxKeys;
    return group.all_from <= first && first + kAmxKeys - 1 <= group.all_to;
  }
  /// Bits of the keys of a chunk that a query sees.
  static uint32_t keys_seen(const Group& group, int64_t row, int64_t block, int64_t index) {
    const int64_t first = block * kTileKeys + index * kAmxKeys;
    const int64_t from = std::clamp<int64_t>(group.first[row] - first, 0, kAmxKeys);
    const int64_t to = std::clamp<int64_t>(group.last[row] + 1 - first, 0, kAmxKeys);
    return from < to ? static_cast<uint32_t>((uint64_t{1} << to) - (uint64_t{1} << from)) : 0;
  }

  TiledCache::Block tiles_of(const Chunk& chunk) const {
    return cache_.block(task_.segment_index, task_.kv_head, chunk.block);
  }
  /// Scores of chunk `index` in the chunk's block.
  AmxScores scores_of(const Chunk& chunk, int64_t index, float* scores) const {
    return {.steps = cache_.k_dim / 32,
            .q = chunk.group->q,
            .k = tiles_of(chunk).k + index * kAmxKeys * cache_.k_dim / 2,
            .starts = chunk.group->starts,
            .scores = scores};
  }
  AmxWeights weights_of(const Chunk& chunk) const {
    const Group& group = *chunk.group;
    return {.scores = chunk.scores,
            .seen = chunk.hides ? chunk.seen : nullptr,
            .before = chunk.index == chunk.begin ? group.sums : group.next,
            .sums = group.next,
            .weights = weights_ + chunk.index * 512,
            .half = kBlockChunks * 512};
  }

  /// Completes the pending chunk, whose weights are computed; next: the chunk whose scores are.
  void finish(const Chunk* next) {
    const Chunk& chunk = *pending_;
    if (chunk.index + 1 < chunk.end) return;
    Group& group = *chunk.group;
    const SumRanges ranges = ranges_of(group.next);
    const uint32_t again = ranges.far | ~(group.seen | ranges.seen);
    const bool moves = again != 0 && weigh_again(chunk, again, ranges.far);
    group.seen |= ranges.seen;
    const auto tiles = tiles_of(chunk);
    add_values({.chunks = chunk.end - chunk.begin,
                .weights = weights_ + chunk.begin * 512,
                .half = kBlockChunks * 512,
                .columns = cache_.v_dim / 32,
                .v = tiles.v + chunk.begin * 512,
                .column = tiles.keys / kAmxKeys * 512,
                .out = group.out});
    std::swap(group.sums, group.next);
    if (moves && next && next->group == &group)
      score_and_weigh(scores_of(*next, next->index, next->scores), nullptr);
  }

  /// Weighs the block of a chunk again for some rows, relative to their largest scores. Returns
  /// whether a reference moved.
  HWY_NOINLINE bool weigh_again(const Chunk& chunk, uint32_t rows, uint32_t far) {
    Group& group = *chunk.group;
    for (int64_t index = chunk.begin; index < chunk.end; ++index)
      score_and_weigh(scores_of(chunk, index, again_ + (index - chunk.begin) * kScores), nullptr);
    bool moves = false;
    for (int64_t i = 0; i < kAmxRows; ++i) {
      if ((rows >> i & 1) == 0) continue;
      uint32_t seen[kBlockChunks];
      for (int64_t index = chunk.begin; index < chunk.end; ++index)
        seen[index - chunk.begin] = keys_seen(group, i, chunk.block, index);
      const AmxRow row{i, chunk.end - chunk.begin, again_, seen};
      const float largest = largest_of(row);
      if (std::isnan(largest)) std::fill_n(group.next + i * 16, 16, largest);
      if (!std::isfinite(largest)) continue;
      float by = largest - kAmxBias;
      // Sums that are large by earlier keys.
      if ((far >> i & 1) != 0 && by <= 0.0f) by = kReach * kAmxUnit;
      move_reference(group, i, by);
      weigh_row(row, by,
                {.before = group.sums,
                 .sums = group.next,
                 .weights = weights_ + chunk.begin * 512,
                 .half = kBlockChunks * 512});
      moves = true;
    }
    return moves;
  }

  /// Moves a row's reference, in units of scores, and corrects earlier sums.
  void move_reference(Group& group, int64_t row, float by) {
    float *start = group.starts + row * 16, *sums = group.sums + row * 16;
    std::fill_n(start, 16, start[0] - by);
    const bool has_seen = (group.seen >> row & 1) != 0;
    if (!has_seen && queries_.has_sinks()) {  // nothing else was summed
      sums[0] = std::exp2(queries_.sink(group.first_row + row) - by / kAmxUnit);
    } else if (by > 0.0f) {
      const VF correction = set(std::exp2(-by / kAmxUnit));
      multiply_by(correction, sums, 16);
      for_parts(group, row,
                [&](int64_t, float* part) HWY_ATTR { multiply_by(correction, part, 16); });
    }
    group.seen |= uint32_t{1} << row;
  }
  /// Calls use(d, part) for the 16 results from dimension d on, and so forth.
  template <class Use>
  void for_parts(const Group& group, int64_t row, const Use& use) const {
    for (int64_t d = 0; d < cache_.v_dim; d += 16)
      use(d, group.out + d / 32 * 1024 + row / 16 * 512 + d % 32 * 16 + row % 16 * 16);
  }

  void store_results(const Group& group) {
    const float scale = queries_.scale_of(args_.v_scales);
    for (int64_t row = 0; row < group.rows; ++row) {
      const VF factor = set(scale / sum_of_parts(group.sums + row * 16));
      for_parts(group, row, [&](int64_t d, const float* part) HWY_ATTR {
        for (int64_t i = 0; i < 16; i += kLanes)
          hn::Store(hn::Mul(factor, hn::Load(DF(), part + i)), DF(), row_ + d + i);
      });
      queries_.store(group.first_row + row, row_);
    }
  }

  const AttentionArgs& args_;
  const AttentionTask& task_;
  const TiledCache& cache_;
  TaskQueries queries_;
  Group groups_[kAmxQueries / kAmxRows];
  int64_t num_groups_ = 0;
  Chunk chunks_[2];
  Chunk* pending_ = nullptr;
  int turn_ = 0;
  float* scores_[2];  ///< [kScores]
  float* again_;      ///< [kBlockChunks, kScores]
  BF16* weights_;     ///< as in AmxValues, of a block
  float* row_;
};

void attend_by_amx_here(const AttentionArgs& args, const AttentionTask& task,
                        const TiledCache& cache, float* scratch) {
  AttendByAmx attend(args, task, cache, scratch);
  attend.run();
  fold_into(args.seen, attend.seen());
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(attend_by_amx_here);

void attend_by_amx(const AttentionArgs& args, const AttentionTask& task, const TiledCache& cache,
                   float* scratch) {
  HWY_DYNAMIC_DISPATCH(attend_by_amx_here)(args, task, cache, scratch);
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
