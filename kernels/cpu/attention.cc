#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention_lanes-inl.h"
#include "kernels/cpu/fp8_write-inl.h"
#include "kernels/cpu/query_tile-inl.h"

// Attention in float32. Queries lie in the lanes of vectors; keys, values and dimensions are walked
// one by one.
#ifndef KVCAL_KERNELS_CPU_ATTENTION_ONCE
#define KVCAL_KERNELS_CPU_ATTENTION_ONCE
namespace kvcal::cpu {

/// Keys in a block; blocks begin at multiples of it, counted from the segment's first key.
constexpr int64_t kKeys = 64;
static_assert(kFp8AttentionKeys <= kKeys);

inline int64_t attention_scratch_size(int64_t head_dim, int64_t value_dim) {
  return (head_dim + value_dim + kKeys) * kQueries + (head_dim + value_dim) * kKeys + 3 * kQueries;
}

}  // namespace kvcal::cpu
#endif

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
    q_ = take(scratch, head_dim_ * kQueries);
    out_ = take(scratch, value_dim_ * kQueries);
    scores_ = take(scratch, kKeys * kQueries);
    k_ = take(scratch, head_dim_ * kKeys);
    v_ = take(scratch, value_dim_ * kKeys);
    max_ = take(scratch, kQueries);
    sum_ = take(scratch, kQueries);
    correction_ = take(scratch, kQueries);
  }

  void run() {
    load_queries();
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
  static float* take(float*& scratch, int64_t count) {
    float* part = scratch;
    scratch += count;
    return part;
  }

  void load_queries() {
    for (int64_t lane = 0; lane < kQueries; lane += 4) {
      const float* rows[4];
      for (int64_t i = 0; i < 4; ++i) rows[i] = lanes_.queries().query(lane + i);
      rows_to_columns(rows, head_dim_, q_ + lane, kQueries);
    }
    multiply_by(set(lanes_.queries().score_factor()), q_, head_dim_ * kQueries);
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
};

void attend(const AttentionArgs& args, const AttentionTask& task, float* scratch) {
  Attend attend(args, task, scratch);
  attend.run();
  fold_into(args.seen, attend.seen());
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(attend);

void CpuBackend::do_attention(const AttentionArgs& asked) {
  const AttentionArgs args = with_current_segments(asked);
  // A single query would leave a tile almost empty.
  const bool in_tiles = args.product_type == ComputeType::kBFloat16 && !args.is_decoding &&
                        args.weight_scale == 0.0f && tile_instructions() != TileInstructions::kNone;
  in_tiles ? attention_in_tiles(args) : attention_in_float32(args);
}

void CpuBackend::attention_in_float32(const AttentionArgs& args) {
  const std::vector<AttentionTask> tasks = cut_attention(args, kQueries);
  pool_.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t index, int thread) {
    float* scratch = scratch_[static_cast<size_t>(thread)].get<float>(
        attention_scratch_size(args.head_dim, args.value_dim()));
    HWY_DYNAMIC_DISPATCH(attend)(args, tasks[static_cast<size_t>(index)], scratch);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
