#include <algorithm>
#include <limits>
#include <numbers>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/kv_read-inl.h"
#include "kernels/cpu/query_tile-inl.h"
#include "kernels/cpu/vector-inl.h"

// Attention in blocks, with the running softmax of Milakov and Gimelshein (2018). Queries lie
// across the lanes of vectors, and keys, values and dimensions are walked one by one, so each query
// is summed by itself in a fixed order: its result depends on no other query, on no thread, and not
// on how many queries a call has.
#ifndef KVCAL_KERNELS_CPU_ATTENTION_ONCE
#define KVCAL_KERNELS_CPU_ATTENTION_ONCE
namespace kvcal::cpu {

/// Keys in a block; blocks begin at multiples of it, counted from the segment's first key.
constexpr int64_t kKeys = 64;

struct AttentionTask {
  const Segment* segment = nullptr;
  int64_t kv_head = 0;
  int64_t first_token = 0, tokens = 0;  ///< within the segment
  int64_t first_head = 0, heads = 0;    ///< tokens * heads <= kQueries
};

inline int64_t attention_scratch_size(int64_t head_dim, int64_t value_dim) {
  return (head_dim + value_dim + kKeys) * kQueries + (head_dim + value_dim) * kKeys + 5 * kQueries;
}

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// One task: its queries against all keys they see.
class Attend {
 public:
  Attend(const AttentionArgs& args, const AttentionTask& task, float* scratch)
      : args_(args), task_(task), head_dim_(args.head_dim), value_dim_(args.value_dim()) {
    q_ = take(scratch, head_dim_ * kQueries);
    out_ = take(scratch, value_dim_ * kQueries);
    scores_ = take(scratch, kKeys * kQueries);
    max_ = take(scratch, kQueries);
    sum_ = take(scratch, kQueries);
    correction_ = take(scratch, kQueries);
    first_ = reinterpret_cast<int32_t*>(take(scratch, kQueries));
    last_ = reinterpret_cast<int32_t*>(take(scratch, kQueries));
    k_ = take(scratch, head_dim_ * kKeys);
    v_ = take(scratch, value_dim_ * kKeys);
    for (int64_t lane = 0; lane < kQueries; ++lane) set_bounds(lane);
  }

  void run() {
    load_queries();
    std::fill_n(out_, value_dim_ * kQueries, 0.0f);
    start_softmax();
    const int64_t begin = first_[0], end = last_[num_queries() - 1] + 1;
    for (int64_t block = begin / kKeys * kKeys; block < end; block += kKeys)
      add_keys(std::max(block, begin), std::min(block + kKeys, end));
    store_results();
  }

 private:
  static constexpr float kLog2e = std::numbers::log2e_v<float>;

  static float* take(float*& scratch, int64_t count) {
    float* part = scratch;
    scratch += count;
    return part;
  }
  int64_t num_queries() const { return task_.tokens * task_.heads; }
  /// Lanes behind the last query repeat the first; nobody reads their results.
  int64_t query_of(int64_t lane) const { return lane < num_queries() ? lane : 0; }
  int64_t token_of(int64_t lane) const { return task_.first_token + query_of(lane) / task_.heads; }
  int64_t head_of(int64_t lane) const { return task_.first_head + query_of(lane) % task_.heads; }

  /// The keys that the query in lane sees, counted from the segment's first.
  void set_bounds(int64_t lane) {
    const Segment& segment = *task_.segment;
    const int64_t position = segment.kv_count - segment.q_count + token_of(lane);
    const int64_t window = args_.sliding_window;
    first_[lane] =
        static_cast<int32_t>(window > 0 ? std::max<int64_t>(0, position - window + 1) : 0);
    last_[lane] = static_cast<int32_t>(position);
  }

  const float* query(int64_t lane) const {
    return args_.q + (task_.segment->q_begin + token_of(lane)) * args_.q_row_stride +
           head_of(lane) * head_dim_;
  }

  /// Nothing seen yet but the sink, whose weight is 1 while it is the maximum.
  void start_softmax() {
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    for (int64_t lane = 0; lane < kQueries; ++lane) {
      max_[lane] = args_.sinks ? std::max(args_.sinks[head_of(lane)] * kLog2e, kLowest) : kLowest;
      sum_[lane] = args_.sinks ? 1.0f : 0.0f;
    }
  }

  /// Queries become columns, times what makes their products scores in units of powers of two, or
  /// fractions of the softcap.
  void load_queries() {
    const float scale =
        args_.softcap > 0.0f ? args_.softmax_scale / args_.softcap : args_.softmax_scale * kLog2e;
    for (int64_t lane = 0; lane < kQueries; lane += 4) {
      const float* rows[4] = {query(lane), query(lane + 1), query(lane + 2), query(lane + 3)};
      rows_to_columns(rows, head_dim_, scale, q_ + lane);
    }
  }

  /// Where keys or values lie.
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

  /// Rows [begin, end) as float32: in place where they are that already.
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

  /// Folds the keys [begin, end) of one block into sums and maxima.
  void add_keys(int64_t begin, int64_t end) {
    const Rows k = read({args_.k, args_.k_scales, head_dim_, k_}, begin, end);
    multiply({.a = k.first,
              .row_stride = k.stride,
              .step_stride = 1,
              .rows = end - begin,
              .steps = head_dim_,
              .b = q_,
              .out = scores_});
    if (args_.softcap > 0.0f) cap_scores(end - begin);
    const int64_t tail = num_queries() - 1;
    if (begin < first_[tail] || end - 1 > last_[0]) hide_keys(begin, end);
    for (int64_t lane = 0; lane < kQueries; lane += kStrip * kLanes) soften(end - begin, lane);
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

  /// Fractions of the softcap become scores in units of powers of two.
  void cap_scores(int64_t keys) {
    const VF cap = set(args_.softcap * kLog2e);
    for (int64_t i = 0; i < keys * kQueries; i += kLanes)
      hn::Store(hn::Mul(cap, tanh(hn::Load(DF(), scores_ + i))), DF(), scores_ + i);
  }

  /// Scores of keys that a query does not see become -infinity.
  void hide_keys(int64_t begin, int64_t end) {
    const VF hidden = set(-std::numeric_limits<float>::infinity());
    for (int64_t lane = 0; lane < kQueries; lane += kLanes) {
      const VI first = hn::Load(DI(), first_ + lane), last = hn::Load(DI(), last_ + lane);
      for (int64_t key = begin; key < end; ++key) {
        float* score = scores_ + (key - begin) * kQueries + lane;
        const VI index = set_int(static_cast<int32_t>(key));
        const auto outside = hn::Or(hn::Lt(index, first), hn::Gt(index, last));
        hn::Store(hn::IfThenElse(hn::RebindMask(DF(), outside), hidden, hn::Load(DF(), score)),
                  DF(), score);
      }
    }
  }

  /// Turns the scores of a strip of queries into weights below the maximum so far.
  void soften(int64_t keys, int64_t lane) {
    float* scores = scores_ + lane;
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
        float* score = scores + key * kQueries + i * kLanes;
        const VF weight = exp2_of_negative(hn::Sub(hn::Load(DF(), score), largest[i]));
        hn::Store(weight, DF(), score);
        sums[i] = hn::Add(sums[i], weight);
      }
    for (int64_t i = 0; i < kStrip; ++i) hn::Store(sums[i], DF(), sum_ + lane + i * kLanes);
  }

  /// Columns become rows again, divided by the sum of their weights.
  void store_results() {
    float* rows = v_;  // no longer needed
    for (int64_t lane = 0; lane < num_queries(); lane += 4) {
      columns_to_rows(out_ + lane, sum_ + lane, value_dim_, rows);
      const int64_t here = std::min<int64_t>(4, num_queries() - lane);
      for (int64_t i = 0; i < here; ++i) store_row(lane + i, rows + i * value_dim_);
    }
  }

  void store_row(int64_t lane, const float* row) const {
    const int64_t out =
        ((task_.segment->q_begin + token_of(lane)) * args_.heads + head_of(lane)) * value_dim_;
    switch (args_.out_type) {
      case ComputeType::kFloat32:
        return convert_row(row, value_dim_, static_cast<float*>(args_.out) + out);
      case ComputeType::kBFloat16:
        return convert_row(row, value_dim_, static_cast<BF16*>(args_.out) + out);
      case ComputeType::kFloat16:
        return convert_row(row, value_dim_, static_cast<F16*>(args_.out) + out);
    }
  }

  const AttentionArgs& args_;
  const AttentionTask& task_;
  const int64_t head_dim_, value_dim_;
  float* q_;                         ///< [head_dim, kQueries]
  float* out_;                       ///< [value_dim, kQueries]
  float* scores_;                    ///< [kKeys, kQueries]: scores, then weights
  float *max_, *sum_, *correction_;  ///< [kQueries]
  int32_t *first_, *last_;           ///< [kQueries]: keys seen
  float *k_, *v_;                    ///< [kKeys, head_dim] and [kKeys, value_dim]
};

void attend(const AttentionArgs& args, const AttentionTask& task, float* scratch) {
  Attend(args, task, scratch).run();
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(attend);

namespace {

/// Work in pieces of kQueries: segment by segment and head by head, so that a head's keys and
/// values stay in cache, the longest piece first.
std::vector<AttentionTask> cut(const AttentionArgs& args) {
  const int64_t group = args.heads / args.kv_heads;
  const int64_t heads = std::min(group, kQueries), tokens = kQueries / heads;
  std::vector<AttentionTask> tasks;
  for (const Segment& segment : args.segments)
    for (int64_t head = 0; head < args.heads;) {
      const int64_t kv_head = head / group;
      const int64_t here = std::min(heads, (kv_head + 1) * group - head);
      for (int64_t block = (segment.q_count + tokens - 1) / tokens; block-- > 0;) {
        const int64_t first = block * tokens;
        tasks.push_back({.segment = &segment,
                         .kv_head = kv_head,
                         .first_token = first,
                         .tokens = std::min(tokens, segment.q_count - first),
                         .first_head = head,
                         .heads = here});
      }
      head += here;
    }
  return tasks;
}

}  // namespace

void CpuBackend::attention(const AttentionArgs& asked) {
  const AttentionArgs args = with_current_segments(asked);
  check_attention(args);
  const std::vector<AttentionTask> tasks = cut(args);
  pool_.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t index, int thread) {
    float* scratch = scratch_[static_cast<size_t>(thread)].get<float>(
        attention_scratch_size(args.head_dim, args.value_dim()));
    HWY_DYNAMIC_DISPATCH(attend)(args, tasks[static_cast<size_t>(index)], scratch);
  });
  observe_attended(args);
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
