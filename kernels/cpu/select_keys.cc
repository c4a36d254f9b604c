#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/select_keys.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention-inl.h"

// Scores of keys for sparse attention, in float32. As in attention, queries lie in the lanes of
// vectors.
#ifndef KVCAL_KERNELS_CPU_SELECT_KEYS_ONCE
#define KVCAL_KERNELS_CPU_SELECT_KEYS_ONCE
namespace kvcal::cpu {

/// Keys that one product scores.
constexpr int64_t kScoredKeys = 64;

/// Consecutive queries of a segment, at most kQueries.
struct SelectionTask {
  const Segment* segment = nullptr;
  int64_t first = 0, count = 0;  ///< within the segment
  int64_t block = 1;

  /// Keys that the query sees.
  int64_t keys(int64_t query) const {
    return segment->kv_count - segment->q_count + first + query + 1;
  }
  /// Rows of k among which it chooses.
  int64_t choices(int64_t query) const { return keys(query) / block; }
  int64_t all_choices() const { return choices(count - 1); }
};

inline int64_t selection_scratch(const SelectKeysArgs& args, const SelectionTask& task) {
  return (args.head_dim + kScoredKeys + 1 + task.all_choices()) * kQueries;
}

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Writes the scores of a task's keys, [keys, kQueries]. Lanes behind the last query repeat the
/// first.
class ScoreKeys {
 public:
  ScoreKeys(const SelectKeysArgs& args, const SelectionTask& task, float* scratch)
      : args_(args), task_(task) {
    const auto take = [&](int64_t count) { return std::exchange(scratch, scratch + count); };
    q_ = take(args.head_dim * kQueries);
    products_ = take(kScoredKeys * kQueries);
    weights_ = take(kQueries);
    scores_ = take(task.all_choices() * kQueries);
  }

  const float* run() {
    const int64_t keys = task_.all_choices();
    std::fill_n(scores_, keys * kQueries, 0.0f);
    for (int64_t head = 0; head < args_.heads; ++head) {
      load_queries(head);
      for (int64_t key = 0; key < keys; key += kScoredKeys)
        add_head(key, std::min(kScoredKeys, keys - key));
    }
    return scores_;
  }

 private:
  int64_t row_of(int64_t lane) const {
    return task_.segment->q_begin + task_.first + (lane < task_.count ? lane : 0);
  }

  void load_queries(int64_t head) {
    for (int64_t lane = 0; lane < kQueries; lane += 4) {
      const float* rows[4];
      for (int64_t i = 0; i < 4; ++i)
        rows[i] = args_.q + (row_of(lane + i) * args_.heads + head) * args_.head_dim;
      rows_to_columns(rows, args_.head_dim, q_ + lane, kQueries);
    }
    for (int64_t lane = 0; lane < kQueries; ++lane)
      weights_[lane] = args_.weights ? args_.weights[row_of(lane) * args_.heads + head] : 1.0f;
  }

  void add_head(int64_t first, int64_t keys) {
    multiply({.a = args_.k + (task_.segment->kv_begin + first) * args_.head_dim,
              .row_stride = args_.head_dim,
              .step_stride = 1,
              .rows = keys,
              .steps = args_.head_dim,
              .b = q_,
              .out = products_});
    for (int64_t lane = 0; lane < kQueries; lane += kLanes) {
      const VF weight = hn::Load(DF(), weights_ + lane);
      for (int64_t key = 0; key < keys; ++key) {
        float* score = scores_ + (first + key) * kQueries + lane;
        const VF product = hn::Load(DF(), products_ + key * kQueries + lane);
        const VF positive = hn::IfThenZeroElse(hn::Lt(product, set(0.0f)), product);  // or NaN
        hn::Store(hn::MulAdd(weight, positive, hn::Load(DF(), score)), DF(), score);
      }
    }
  }

  const SelectKeysArgs& args_;
  const SelectionTask& task_;
  float* q_;         ///< [head_dim, kQueries]
  float* products_;  ///< [kScoredKeys, kQueries]
  float* weights_;   ///< [kQueries]
  float* scores_;    ///< [keys, kQueries]
};

const float* score_keys(const SelectKeysArgs& args, const SelectionTask& task, float* scratch) {
  return ScoreKeys(args, task, scratch).run();
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(score_keys);

namespace {

/// The longest tasks of a segment first.
std::vector<SelectionTask> cut_selection(const SelectKeysArgs& args) {
  std::vector<SelectionTask> tasks;
  for (const Segment& segment : args.segments)
    for (int64_t block = (segment.q_count + kQueries - 1) / kQueries; block-- > 0;)
      tasks.push_back({.segment = &segment,
                       .first = block * kQueries,
                       .count = std::min(kQueries, segment.q_count - block * kQueries),
                       .block = args.block});
  return tasks;
}

}  // namespace

uint64_t CpuBackend::selection_bytes_per_key() const {
  // Scores of a task's queries; one query's, and the same in another order.
  return static_cast<uint64_t>(pool_.num_threads()) * (kQueries + 2) * sizeof(float);
}

void CpuBackend::do_select_keys(const SelectKeysArgs& args) {
  const std::vector<SelectionTask> tasks = cut_selection(args);
  pool_.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t index, int thread) {
    const SelectionTask& task = tasks[static_cast<size_t>(index)];
    const float* scores = nullptr;  // where each query reads all its keys there are none
    if (task.all_choices() > args.topk)
      scores = HWY_DYNAMIC_DISPATCH(score_keys)(
          args, task,
          scratch_[static_cast<size_t>(thread)].get<float>(selection_scratch(args, task)));
    std::vector<float> own;
    std::vector<uint32_t> ordered;
    for (int64_t query = 0; query < task.count; ++query) {
      own.assign(static_cast<size_t>(task.choices(query)), 0.0f);
      for (size_t key = 0; scores && key < own.size(); ++key)
        own[key] = scores[static_cast<int64_t>(key) * kQueries + query];
      const int64_t row = task.segment->q_begin + task.first + query;
      select_blocks(own, task.keys(query), args,
                    {args.out + row * args.row_words, static_cast<size_t>(args.row_words)},
                    ordered);
    }
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
