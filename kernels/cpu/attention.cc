#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/kv-inl.h"

#ifndef KVCAL_KERNELS_CPU_ATTENTION_ONCE
#define KVCAL_KERNELS_CPU_ATTENTION_ONCE
namespace kvcal::cpu {

/// Keys in a block; blocks begin at multiples of it, counted from the segment's first key.
constexpr int64_t kKeys = 64;
static_assert(kFp8AttentionKeys <= kKeys);

/// Distances from the queries of a task, at most kQueries tokens, to the keys of a block.
constexpr int64_t kDistances = kKeys + kQueries;

inline int64_t attention_scratch_size(const AttentionArgs& args) {
  const int64_t dims = args.head_dim + args.value_dim();
  const int64_t relative = args.relative.states ? args.relative.rank + kDistances : 0;
  return (dims + kKeys + relative + 3) * kQueries + dims * kKeys;
}

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
  return (args.head_dim + all.end - all.begin + args.v_head_dim + 6) * kQueries;
}

}  // namespace kvcal::cpu
#endif  // KVCAL_KERNELS_CPU_ATTENTION_ONCE

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// One task: its queries against all visible keys.
class Attend {
 public:
  Attend(const AttentionArgs& args, const AttentionTask& task, float* scratch)
      : args_(args),
        task_(task),
        head_dim_(args.head_dim),
        value_dim_(args.value_dim()),
        lanes_(args, task) {
    const auto take = [&](int64_t count) { return std::exchange(scratch, scratch + count); };
    q_ = take(head_dim_ * kQueries);
    out_ = take(value_dim_ * kQueries);
    scores_ = take(kKeys * kQueries);
    k_ = take(head_dim_ * kKeys);
    v_ = take(value_dim_ * kKeys);
    max_ = take(kQueries);
    sum_ = take(kQueries);
    correction_ = take(kQueries);
    if (!args.relative.states) return;
    states_ = take(args.relative.rank * kQueries);
    relative_ = take(kDistances * kQueries);
  }

  void run() {
    load_queries();
    if (args_.relative.states) load_states();
    start_softmax();
    std::fill_n(out_, value_dim_ * kQueries, 0.0f);
    const int64_t begin = lanes_.queries().begin(), end = lanes_.queries().end();
    const int64_t keys = args_.weight_scale > 0.0f ? kFp8AttentionKeys : kKeys;
    for (int64_t block = begin / keys * keys; block < end; block += keys)
      add_keys(std::max(block, begin), std::min(block + keys, end));
    for (int64_t lane = 0; lane < kQueries; ++lane) sum_[lane] = 1.0f / sum_[lane];
    lanes_.store_results(out_, sum_, v_);
  }
  const Magnitudes& seen() const { return lanes_.queries().seen(); }

 private:
  void load_queries() {
    for (int64_t lane = 0; lane < kQueries; lane += 4) {
      const float* rows[4];
      for (int64_t i = 0; i < 4; ++i) rows[i] = lanes_.queries().query(lane + i);
      rows_to_columns(rows, head_dim_, q_ + lane, kQueries);
    }
    multiply_by(set(lanes_.queries().score_factor()), q_, head_dim_ * kQueries);
  }

  void load_states() {
    const int64_t rank = args_.relative.rank;
    for (int64_t lane = 0; lane < kQueries; ++lane) {
      const float* states = lanes_.queries().relative_states(lane);
      for (int64_t i = 0; i < rank; ++i)
        states_[i * kQueries + lane] = states[i] * TaskQueries::kLog2e;
    }
  }

  /// Adds the logits of the distances between queries and the keys [begin, end) to scores.
  void add_relative(int64_t begin, int64_t end) {
    const TaskQueries& queries = lanes_.queries();
    const int64_t rank = args_.relative.rank;
    const int64_t nearest = std::max<int64_t>(0, queries.last_key(0) - end + 1);
    const int64_t furthest =
        std::min<int64_t>(args_.relative.extent - 1, queries.last_key(queries.count() - 1) - begin);
    if (nearest > furthest) return;
    multiply({.a = args_.relative.table + nearest * rank,
              .row_stride = rank,
              .step_stride = 1,
              .rows = furthest - nearest + 1,
              .steps = rank,
              .b = states_,
              .out = relative_});
    for (int64_t lane = 0; lane < queries.count(); ++lane) {
      const int64_t own = queries.last_key(lane);
      for (int64_t key = std::max(begin, own - furthest); key < std::min(end, own + 1); ++key)
        scores_[(key - begin) * kQueries + lane] +=
            relative_[(own - key - nearest) * kQueries + lane];
    }
  }

  /// Initial softmax state: only the sink, whose weight is 1 while it is the maximum.
  void start_softmax() {
    for (int64_t lane = 0; lane < kQueries; ++lane) {
      const bool has_sinks = lanes_.queries().has_sinks();
      max_[lane] = has_sinks ? lanes_.queries().sink(lane) : std::numeric_limits<float>::lowest();
      sum_[lane] = has_sinks ? 1.0f : 0.0f;
    }
  }

  /// Location of keys or values.
  struct Stored {
    const void* rows = nullptr;
    const float* scales = nullptr;
    int64_t dim = 0;
    float* tile = nullptr;  ///< [kKeys, dim]
  };
  /// Rows of float32.
  struct Rows {
    const float* first = nullptr;
    int64_t stride = 0;
  };

  /// Rows [begin, end) as float32; in place if they are float32.
  Rows read(const Stored& stored, int64_t begin, int64_t end) const {
    const int64_t row_stride = args_.kv_heads * stored.dim;
    const int64_t element =
        (task_.segment->kv_begin + begin) * row_stride + task_.kv_head * stored.dim;
    if (args_.kv_dtype == KvDType::kFloat32)
      return {static_cast<const float*>(stored.rows) + element, row_stride};
    const auto* bytes = static_cast<const std::byte*>(stored.rows);
    read_kv({.dtype = args_.kv_dtype,
             .first = bytes + element * bytes_per_element(args_.kv_dtype),
             .row_stride = row_stride,
             .rows = end - begin,
             .head_dim = stored.dim,
             .scale = stored.scales ? stored.scales[task_.kv_head] : 1.0f},
            stored.tile, stored.dim);
    return {stored.tile, stored.dim};
  }

  /// Adds the keys [begin, end) of one block to sums and maxima.
  void add_keys(int64_t begin, int64_t end) {
    const Rows k = read({args_.k, args_.k_scales, head_dim_, k_}, begin, end);
    multiply({.a = k.first,
              .row_stride = k.stride,
              .step_stride = 1,
              .rows = end - begin,
              .steps = head_dim_,
              .b = q_,
              .out = scores_});
    if (args_.softcap > 0.0f) lanes_.cap_scores(end - begin, scores_);
    if (args_.slopes) lanes_.add_slopes(begin, end, scores_);
    if (args_.relative.states) add_relative(begin, end);
    lanes_.hide_keys(begin, end, scores_);
    for (int64_t lane = 0; lane < kQueries; lane += kStrip * kLanes) soften(end - begin, lane);
    if (args_.weight_scale > 0.0f) round_weights(end - begin);
    const Rows v = read({args_.v, args_.v_scales, value_dim_, v_}, begin, end);
    multiply({.a = v.first,
              .row_stride = 1,
              .step_stride = v.stride,
              .rows = value_dim_,
              .steps = end - begin,
              .b = scores_,
              .factor = correction_,
              .out = out_});
  }

  /// Converts the scores of a strip of queries to softmax weights relative to the maximum so far.
  void soften(int64_t keys, int64_t lane) {
    const float* scores = scores_ + lane;
    VF largest[kStrip], sums[kStrip];
    for (int64_t i = 0; i < kStrip; ++i) largest[i] = hn::Load(DF(), max_ + lane + i * kLanes);
    for (int64_t key = 0; key < keys; ++key)
      for (int64_t i = 0; i < kStrip; ++i)
        largest[i] = hn::Max(largest[i], hn::Load(DF(), scores + key * kQueries + i * kLanes));
    for (int64_t i = 0; i < kStrip; ++i) {
      const int64_t at = lane + i * kLanes;
      const VF correction = exp2_of_negative(hn::Sub(hn::Load(DF(), max_ + at), largest[i]));
      hn::Store(correction, DF(), correction_ + at);
      hn::Store(largest[i], DF(), max_ + at);
      sums[i] = hn::Mul(correction, hn::Load(DF(), sum_ + at));
    }
    for (int64_t key = 0; key < keys; ++key)
      for (int64_t i = 0; i < kStrip; ++i) {
        float* score = scores_ + key * kQueries + lane + i * kLanes;
        const VF weight = exp2_of_negative(hn::Sub(hn::Load(DF(), score), largest[i]));
        hn::Store(weight, DF(), score);
        sums[i] = hn::Add(sums[i], weight);
      }
    for (int64_t i = 0; i < kStrip; ++i) hn::Store(sums[i], DF(), sum_ + lane + i * kLanes);
  }

  /// Weights become FP8 codes times their scale, after they have been summed.
  void round_weights(int64_t keys) {
    constexpr fp8::Format kFormat = fp8::Format::kE4m3Fn;
    const VF scale = set(args_.weight_scale), times = set(args_.weight_scale * kBiasScale<kFormat>);
    for (int64_t i = 0; i < keys * kQueries; i += kLanes) {
      const VI codes = encode<kFormat>(hn::Div(hn::Load(DF(), scores_ + i), scale));
      const auto halves = half_bits<kFormat>(hn::TruncateTo(DU16(), hn::BitCast(DU(), codes)));
      hn::Store(hn::Mul(times, float_of_half(halves)), DF(), scores_ + i);
    }
  }

  const AttentionArgs& args_;
  const AttentionTask& task_;
  const int64_t head_dim_, value_dim_;
  AttentionLanes<kQueries> lanes_;
  float* q_;                         ///< [head_dim, kQueries]
  float* out_;                       ///< [value_dim, kQueries]
  float* scores_;                    ///< [kKeys, kQueries]: scores, then weights
  float *k_, *v_;                    ///< [kKeys, head_dim] and [kKeys, value_dim]
  float *max_, *sum_, *correction_;  ///< [kQueries]
  // Of relative logits:
  float* states_ = nullptr;    ///< [rank, kQueries]
  float* relative_ = nullptr;  ///< [kDistances, kQueries] logits, from the nearest distance on
};

void attend(const AttentionArgs& args, const AttentionTask& task, float* scratch) {
  Attend attend(args, task, scratch);
  attend.run();
  fold_into(args.seen, attend.seen());
}

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
    slope_ = take(1);
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
    if (args_.relative.states) add_relative();
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
      slope_[lane] = args_.slopes ? args_.slopes[row_of(lane) % args_.heads] : 0.0f;
    }
  }

  float* score(int64_t key, int64_t lane) const { return scores_ + key * kQueries + lane; }

  /// Adds to scores what their keys' distances give.
  void add_relative() const {
    for (int64_t lane = 0; lane < task_.count; ++lane) {
      const KeySpan& seen = seen_by(lane);
      const int64_t furthest = std::min(args_.relative.extent - 1, seen.end - 1 - seen.begin);
      for (int64_t distance = 0; distance <= furthest; ++distance)
        *score(seen.end - 1 - distance - keys_.begin, lane) +=
            args_.relative.at(row_of(lane), distance);
    }
  }

  /// Caps scores, adds slopes, and hides keys that a query does not see.
  void find_largest(int64_t lane) {
    const VF slope = hn::Load(DF(), slope_ + lane);
    const VF begin = hn::Load(DF(), begin_ + lane), end = hn::Load(DF(), end_ + lane);
    const VF hidden = set(-std::numeric_limits<float>::infinity());
    VF largest = hn::Load(DF(), sink_ + lane);
    for (int64_t key = 0; key < num_keys(); ++key) {
      const VF number = set(static_cast<float>(key));
      VF own = hn::Load(DF(), score(key, lane));
      if (args_.softcap > 0.0f)
        own = hn::Mul(set(args_.softcap), tanh(hn::Mul(own, set(1.0f / args_.softcap))));
      if (args_.slopes) own = hn::MulAdd(slope, hn::Add(hn::Sub(number, end), set(1.0f)), own);
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
  float* slope_;          ///< [kQueries]
};

void weigh_keys(const AttentionWeightsArgs& args, const WeightsTask& task, float* scratch) {
  WeighKeys(args, task, scratch).run();
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {

HWY_EXPORT(attend);

void CpuBackend::do_attention(const AttentionArgs& asked) {
  const AttentionArgs args = with_current_segments(asked);
  // A single query would leave a tile almost empty. Tiles know no slopes.
  const bool in_tiles = args.product_type == ComputeType::kBFloat16 && !args.is_decoding &&
                        args.weight_scale == 0.0f && !args.slopes && !args.relative.states &&
                        tile_instructions() != TileInstructions::kNone;
  in_tiles ? attention_in_tiles(args) : attention_in_float32(args);
}

void CpuBackend::attention_in_float32(const AttentionArgs& args) {
  const std::vector<AttentionTask> tasks = cut_attention(args, kQueries);
  pool_.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t index, int thread) {
    float* scratch = scratch_[static_cast<size_t>(thread)].get<float>(attention_scratch_size(args));
    HWY_DYNAMIC_DISPATCH(attend)(args, tasks[static_cast<size_t>(index)], scratch);
  });
}

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
