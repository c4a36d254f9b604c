// What queries lie in the lanes of vectors, which keys each sees, and its running softmax (Milakov
// and Gimelshein, 2018): each query is summed by itself in a fixed order, so its result depends on
// no other query, on no thread, and not on how many queries a call has. The guard is Highway's, see
// vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_ATTENTION_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_ATTENTION_LANES_INL_H_
#undef KVCAL_KERNELS_CPU_ATTENTION_LANES_INL_H_
#else
#define KVCAL_KERNELS_CPU_ATTENTION_LANES_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <numbers>

#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/kv_read-inl.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

constexpr int64_t kLanes = HWY_LANES(float);

#if HWY_TARGET != HWY_SCALAR
using D4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<D4>;

HWY_INLINE void transpose(V4& a, V4& b, V4& c, V4& d) {
  const D4 d4;
  const V4 ab_low = hn::InterleaveLower(d4, a, b), ab_high = hn::InterleaveUpper(d4, a, b);
  const V4 cd_low = hn::InterleaveLower(d4, c, d), cd_high = hn::InterleaveUpper(d4, c, d);
  a = hn::ConcatLowerLower(d4, cd_low, ab_low);
  b = hn::ConcatUpperUpper(d4, cd_low, ab_low);
  c = hn::ConcatLowerLower(d4, cd_high, ab_high);
  d = hn::ConcatUpperUpper(d4, cd_high, ab_high);
}
#endif

/// out[d * stride + i] = scale · rows[i][d] for four rows.
HWY_INLINE void rows_to_columns(const float* const* rows, int64_t count, float scale, float* out,
                                int64_t stride) {
  int64_t d = 0;
#if HWY_TARGET != HWY_SCALAR
  const D4 d4;
  const V4 times = hn::Set(d4, scale);
  for (; d + 4 <= count; d += 4) {
    V4 r0 = hn::Mul(hn::LoadU(d4, rows[0] + d), times);
    V4 r1 = hn::Mul(hn::LoadU(d4, rows[1] + d), times);
    V4 r2 = hn::Mul(hn::LoadU(d4, rows[2] + d), times);
    V4 r3 = hn::Mul(hn::LoadU(d4, rows[3] + d), times);
    transpose(r0, r1, r2, r3);
    hn::Store(r0, d4, out + d * stride);
    hn::Store(r1, d4, out + (d + 1) * stride);
    hn::Store(r2, d4, out + (d + 2) * stride);
    hn::Store(r3, d4, out + (d + 3) * stride);
  }
#endif
  for (; d < count; ++d)
    for (int64_t i = 0; i < 4; ++i) out[d * stride + i] = rows[i][d] * scale;
}

/// out[i * count + d] = in[d * stride + i] / divisors[i] for four rows.
HWY_INLINE void columns_to_rows(const float* in, int64_t stride, const float* divisors,
                                int64_t count, float* out) {
  int64_t d = 0;
#if HWY_TARGET != HWY_SCALAR
  const D4 d4;
  const V4 divisor = hn::Load(d4, divisors);
  for (; d + 4 <= count; d += 4) {
    V4 c0 = hn::Div(hn::Load(d4, in + d * stride), divisor);
    V4 c1 = hn::Div(hn::Load(d4, in + (d + 1) * stride), divisor);
    V4 c2 = hn::Div(hn::Load(d4, in + (d + 2) * stride), divisor);
    V4 c3 = hn::Div(hn::Load(d4, in + (d + 3) * stride), divisor);
    transpose(c0, c1, c2, c3);
    hn::StoreU(c0, d4, out + d);
    hn::StoreU(c1, d4, out + count + d);
    hn::StoreU(c2, d4, out + 2 * count + d);
    hn::StoreU(c3, d4, out + 3 * count + d);
  }
#endif
  for (; d < count; ++d)
    for (int64_t i = 0; i < 4; ++i) out[i * count + d] = in[d * stride + i] / divisors[i];
}

/// The queries of one task. Scores are in units of powers of two, so that weights are powers of
/// two.
template <int64_t kQueries>
class AttentionLanes {
 public:
  static constexpr float kLog2e = std::numbers::log2e_v<float>;
  /// Floats of working memory.
  static constexpr int64_t kScratch = 5 * kQueries;

  AttentionLanes(const AttentionArgs& args, const AttentionTask& task, float* scratch)
      : args_(args),
        task_(task),
        max_(scratch),
        sum_(scratch + kQueries),
        correction_(scratch + 2 * kQueries),
        first_(reinterpret_cast<int32_t*>(scratch + 3 * kQueries)),
        last_(reinterpret_cast<int32_t*>(scratch + 4 * kQueries)) {
    for (int64_t lane = 0; lane < kQueries; ++lane) {
      set_bounds(lane);
      start_softmax(lane);
    }
  }

  const float* correction() const { return correction_; }  ///< [kQueries]
  /// Keys that some query sees, counted from the segment's first: [begin, end).
  int64_t begin() const { return first_[0]; }
  int64_t end() const { return last_[num_queries() - 1] + 1; }

  /// Queries become columns of out [head_dim, kQueries], times scale and what makes their products
  /// scores, or fractions of the softcap.
  void load_queries(float scale, float* out) const {
    const float times = scale * (args_.softcap > 0.0f ? args_.softmax_scale / args_.softcap
                                                      : args_.softmax_scale * kLog2e);
    for (int64_t lane = 0; lane < kQueries; lane += 4) {
      const float* rows[4] = {query(lane), query(lane + 1), query(lane + 2), query(lane + 3)};
      rows_to_columns(rows, args_.head_dim, times, out + lane, kQueries);
    }
  }

  /// Makes scores [end - begin, kQueries] of what load_queries prepared: softcap, and -infinity
  /// where a query does not see a key.
  void finish_scores(int64_t begin, int64_t end, float* scores) const {
    if (args_.softcap > 0.0f) cap_scores(end - begin, scores);
    const int64_t tail = num_queries() - 1;
    if (begin < first_[tail] || end - 1 > last_[0]) hide_keys(begin, end, scores);
  }

  /// Takes the scores of a strip of kStrip vectors of queries into the maxima; the weights so far
  /// must be multiplied by the corrections. True where one of them is not 1.
  template <int64_t kStrip>
  HWY_INLINE bool raise_maxima(const float* scores, int64_t keys, int64_t lane, VF* largest,
                               VF* sums) {
    for (int64_t i = 0; i < kStrip; ++i) largest[i] = hn::Load(DF(), max_ + lane + i * kLanes);
    for (int64_t key = 0; key < keys; ++key)
      for (int64_t i = 0; i < kStrip; ++i)
        largest[i] =
            hn::Max(largest[i], hn::Load(DF(), scores + key * kQueries + lane + i * kLanes));
    bool changed = false;
    for (int64_t i = 0; i < kStrip; ++i) {
      const int64_t at = lane + i * kLanes;
      const VF before = hn::Load(DF(), max_ + at);
      changed |= !hn::AllTrue(DF(), hn::Eq(before, largest[i]));
      const VF correction = exp2_of_negative(hn::Sub(before, largest[i]));
      hn::Store(correction, DF(), correction_ + at);
      hn::Store(largest[i], DF(), max_ + at);
      sums[i] = hn::Mul(correction, hn::Load(DF(), sum_ + at));
    }
    return changed;
  }
  template <int64_t kStrip>
  HWY_INLINE void store_sums(int64_t lane, const VF* sums) {
    for (int64_t i = 0; i < kStrip; ++i) hn::Store(sums[i], DF(), sum_ + lane + i * kLanes);
  }

  /// Columns of out [value_dim, kQueries] become rows of args.out, times scale and divided by the
  /// sum of their weights. rows: room for four.
  void store_results(const float* out, float scale, float* rows) {
    const int64_t value_dim = args_.value_dim();
    if (scale != 1.0f)
      for (int64_t lane = 0; lane < kQueries; ++lane) sum_[lane] /= scale;
    for (int64_t lane = 0; lane < num_queries(); lane += 4) {
      columns_to_rows(out + lane, kQueries, sum_ + lane, value_dim, rows);
      const int64_t here = std::min<int64_t>(4, num_queries() - lane);
      for (int64_t i = 0; i < here; ++i) store_row(lane + i, rows + i * value_dim);
    }
  }

 private:
  int64_t num_queries() const { return task_.tokens * task_.heads; }
  /// Lanes behind the last query repeat the first; nobody reads their results.
  int64_t query_of(int64_t lane) const { return lane < num_queries() ? lane : 0; }
  int64_t token_of(int64_t lane) const { return task_.first_token + query_of(lane) / task_.heads; }
  int64_t head_of(int64_t lane) const { return task_.first_head + query_of(lane) % task_.heads; }
  const float* query(int64_t lane) const {
    return args_.q + (task_.segment->q_begin + token_of(lane)) * args_.q_row_stride +
           head_of(lane) * args_.head_dim;
  }

  /// The keys that the query in lane sees, counted from the segment's first.
  void set_bounds(int64_t lane) {
    const Segment& segment = *task_.segment;
    const int64_t position = segment.kv_count - segment.q_count + token_of(lane);
    const int64_t window = args_.sliding_window;
    first_[lane] =
        static_cast<int32_t>(window > 0 ? std::max<int64_t>(0, position - window + 1) : 0);
    last_[lane] = static_cast<int32_t>(position);
  }

  /// Nothing seen yet but the sink, whose weight is 1 while it is the maximum.
  void start_softmax(int64_t lane) {
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    max_[lane] = args_.sinks ? std::max(args_.sinks[head_of(lane)] * kLog2e, kLowest) : kLowest;
    sum_[lane] = args_.sinks ? 1.0f : 0.0f;
  }

  /// Fractions of the softcap become scores.
  void cap_scores(int64_t keys, float* scores) const {
    const VF cap = set(args_.softcap * kLog2e);
    for (int64_t i = 0; i < keys * kQueries; i += kLanes)
      hn::Store(hn::Mul(cap, tanh(hn::Load(DF(), scores + i))), DF(), scores + i);
  }

  void hide_keys(int64_t begin, int64_t end, float* scores) const {
    const VF hidden = set(-std::numeric_limits<float>::infinity());
    for (int64_t lane = 0; lane < kQueries; lane += kLanes) {
      const VI first = hn::Load(DI(), first_ + lane), last = hn::Load(DI(), last_ + lane);
      for (int64_t key = begin; key < end; ++key) {
        float* score = scores + (key - begin) * kQueries + lane;
        const VI index = set_int(static_cast<int32_t>(key));
        const auto outside = hn::Or(hn::Lt(index, first), hn::Gt(index, last));
        hn::Store(hn::IfThenElse(hn::RebindMask(DF(), outside), hidden, hn::Load(DF(), score)),
                  DF(), score);
      }
    }
  }

  void store_row(int64_t lane, const float* row) const {
    const int64_t width = args_.value_dim();
    const int64_t out =
        ((task_.segment->q_begin + token_of(lane)) * args_.heads + head_of(lane)) * width;
    switch (args_.out_type) {
      case ComputeType::kFloat32:
        return convert_row(row, width, static_cast<float*>(args_.out) + out);
      case ComputeType::kBFloat16:
        return convert_row(row, width, static_cast<BF16*>(args_.out) + out);
      case ComputeType::kFloat16:
        return convert_row(row, width, static_cast<F16*>(args_.out) + out);
    }
  }

  const AttentionArgs& args_;
  const AttentionTask& task_;
  float *max_, *sum_, *correction_;  ///< [kQueries]
  int32_t *first_, *last_;           ///< [kQueries]: keys seen
};

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
