#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_weights.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/query_tile-inl.h"

// Attention that shows its weights, for a few queries. As in attention, queries lie in the lanes of
// vectors, so the same keys serve all queries and heads that read them.
#ifndef KVCAL_KERNELS_CPU_ATTENTION_WEIGHTS_ONCE
#define KVCAL_KERNELS_CPU_ATTENTION_WEIGHTS_ONCE
namespace kvcal::cpu {

/// At most kQueries queries of the heads that share a KV head: rows of [queries, heads of a group].
struct WeightsTask {
  int64_t kv_head = 0, first = 0, count = 0;
};

/// Keys from the first that any query sees to the last.
inline KeySpan all_keys(const AttentionWeightsArgs& args) {
  KeySpan all = args.seen[0];
  for (const KeySpan& seen : args.seen)
    all = {std::min(all.begin, seen.begin), std::max(all.end, seen.end)};
  return all;
}

inline int64_t weights_scratch(const AttentionWeightsArgs& args) {
  const KeySpan all = all_keys(args);
  return (args.head_dim + all.end - all.begin + args.v_head_dim + 5) * kQueries;
}

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

class WeighKeys {
 public:
  WeighKeys(const AttentionWeightsArgs& args, const WeightsTask& task, float* scratch)
      : args_(args), task_(task), keys_(all_keys(args)), group_(args.heads / args.kv_heads) {
    const auto take = [&](int64_t rows) {
      return std::exchange(scratch, scratch + rows * kQueries);
    };
    q_ = take(args.head_dim);
    scores_ = take(num_keys());
    out_ = take(args.v_head_dim);
    begin_ = take(1);
    end_ = take(1);
    largest_ = take(1);
    total_ = take(1);
    sink_ = take(1);
  }

  void run() {
    load_queries();
    multiply({.a = args_.k + (keys_.begin * args_.kv_heads + task_.kv_head) * args_.head_dim,
              .row_stride = args_.kv_heads * args_.head_dim,
              .step_stride = 1,
              .rows = num_keys(),
              .steps = args_.head_dim,
              .b = q_,
              .out = scores_});
    for (int64_t lane = 0; lane < kQueries; lane += kLanes) {
      find_largest(lane);
      add_up(lane);
    }
    write_logs();
    for (int64_t lane = 0; lane < kQueries; lane += kLanes) to_weights(lane);
    multiply({.a = args_.v + (keys_.begin * args_.kv_heads + task_.kv_head) * args_.v_head_dim,
              .row_stride = 1,
              .step_stride = args_.kv_heads * args_.v_head_dim,
              .rows = args_.v_head_dim,
              .steps = num_keys(),
              .b = scores_,
              .out = out_});
    write_outputs();
  }

 private:
  int64_t num_keys() const { return keys_.end - keys_.begin; }
  /// Row of a lane in [queries, heads]; lanes behind the last repeat the first.
  int64_t row_of(int64_t lane) const {
    const int64_t own = task_.first + (lane < task_.count ? lane : 0);
    return own / group_ * args_.heads + task_.kv_head * group_ + own % group_;
  }
  const KeySpan& seen_by(int64_t lane) const {
    return args_.seen[static_cast<size_t>(row_of(lane) / args_.heads)];
  }

  void load_queries() {
    for (int64_t lane = 0; lane < kQueries; ++lane) {
      const float* q = args_.q + row_of(lane) * args_.head_dim;
      for (int64_t d = 0; d < args_.head_dim; ++d)
        q_[d * kQueries + lane] = q[d] * args_.softmax_scale;
      begin_[lane] = static_cast<float>(seen_by(lane).begin - keys_.begin);
      end_[lane] = static_cast<float>(seen_by(lane).end - keys_.begin);
      sink_[lane] = args_.sinks ? args_.sinks[row_of(lane) % args_.heads]
                                : -std::numeric_limits<float>::infinity();
    }
  }

  float* score(int64_t key, int64_t lane) const { return scores_ + key * kQueries + lane; }

  /// Caps scores, and hides keys that a query does not see.
  void find_largest(int64_t lane) {
    const VF begin = hn::Load(DF(), begin_ + lane), end = hn::Load(DF(), end_ + lane);
    const VF hidden = set(-std::numeric_limits<float>::infinity());
    VF largest = hn::Load(DF(), sink_ + lane);
    for (int64_t key = 0; key < num_keys(); ++key) {
      const VF number = set(static_cast<float>(key));
      VF own = hn::Load(DF(), score(key, lane));
      if (args_.softcap > 0.0f)
        own = hn::Mul(set(args_.softcap), tanh(hn::Mul(own, set(1.0f / args_.softcap))));
      own = hn::IfThenElse(hn::And(hn::Ge(number, begin), hn::Lt(number, end)), own, hidden);
      hn::Store(own, DF(), score(key, lane));
      largest = hn::Max(largest, own);
    }
    hn::Store(largest, DF(), largest_ + lane);
  }

  /// The sum of exponentials, then scores less its logarithm and the largest.
  void add_up(int64_t lane) {
    const VF largest = hn::Load(DF(), largest_ + lane);
    VF total = exp(hn::Sub(hn::Load(DF(), sink_ + lane), largest));
    for (int64_t key = 0; key < num_keys(); ++key)
      total = hn::Add(total, exp(hn::Sub(hn::Load(DF(), score(key, lane)), largest)));
    hn::Store(total, DF(), total_ + lane);
    for (int64_t i = 0; i < kLanes; ++i)
      largest_[lane + i] += static_cast<float>(std::log(static_cast<double>(total_[lane + i])));
    const VF log_total = hn::Load(DF(), largest_ + lane);
    for (int64_t key = 0; key < num_keys(); ++key)
      hn::Store(hn::Sub(hn::Load(DF(), score(key, lane)), log_total), DF(), score(key, lane));
  }

  void to_weights(int64_t lane) {
    for (int64_t key = 0; key < num_keys(); ++key)
      hn::Store(exp(hn::Load(DF(), score(key, lane))), DF(), score(key, lane));
  }

  void write_logs() const {
    for (int64_t lane = 0; lane < task_.count; ++lane) {
      const KeySpan& seen = seen_by(lane);
      float* logs = args_.log_weights + row_of(lane) * args_.weights_stride;
      for (int64_t key = seen.begin; key < seen.end; ++key)
        *logs++ = *score(key - keys_.begin, lane);
      if (args_.sinks) *logs = sink_[lane] - largest_[lane];
    }
  }

  void write_outputs() const {
    for (int64_t lane = 0; lane < task_.count; ++lane)
      for (int64_t d = 0; d < args_.v_head_dim; ++d)
        args_.out[row_of(lane) * args_.v_head_dim + d] = out_[d * kQueries + lane];
  }

  const AttentionWeightsArgs& args_;
  const WeightsTask& task_;
  const KeySpan keys_;
  const int64_t group_;   ///< heads that share a KV head
  float* q_;              ///< [head_dim, kQueries]
  float* scores_;         ///< [keys, kQueries]
  float* out_;            ///< [v_head_dim, kQueries]
  float *begin_, *end_;   ///< [kQueries], of the keys seen
  float* largest_;        ///< [kQueries]; with the logarithm of the total from add_up on
  float *total_, *sink_;  ///< [kQueries]
};

void weigh_keys(const AttentionWeightsArgs& args, const WeightsTask& task, float* scratch) {
  WeighKeys(args, task, scratch).run();
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(weigh_keys);

void CpuBackend::do_attention_weights(const AttentionWeightsArgs& args) {
  const int64_t rows = std::ssize(args.seen) * (args.heads / args.kv_heads);
  std::vector<WeightsTask> tasks;
  for (int64_t kv_head = 0; kv_head < args.kv_heads; ++kv_head)
    for (int64_t first = 0; first < rows; first += kQueries)
      tasks.push_back({kv_head, first, std::min(kQueries, rows - first)});
  pool_.parallel_for(std::ssize(tasks), [&](int64_t index, int thread) {
    float* scratch = scratch_[static_cast<size_t>(thread)].get<float>(weights_scratch(args));
    HWY_DYNAMIC_DISPATCH(weigh_keys)(args, tasks[static_cast<size_t>(index)], scratch);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
