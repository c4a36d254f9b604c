// What queries lie in the lanes of vectors and which keys each sees. Softmax runs along the keys
// (Milakov and Gimelshein, 2018): each query is summed by itself in a fixed order, so its result
// depends on no other query, on no thread, and not on how many queries a call has. The guard is
// Highway's, see vector-inl.h.
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
#include "kernels/cpu/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

constexpr int64_t kLanes = HWY_LANES(float);

/// The queries of one task. Scores are in units of powers of two, so that weights are powers of
/// two.
template <int64_t kQueries>
class AttentionLanes {
 public:
  static constexpr float kLog2e = std::numbers::log2e_v<float>;

  AttentionLanes(const AttentionArgs& args, const AttentionTask& task) : args_(args), task_(task) {
    for (int64_t lane = 0; lane < kQueries; ++lane) set_bounds(lane);
  }

  /// Keys that some query sees, counted from the segment's first: [begin, end).
  int64_t begin() const { return first_[0]; }
  int64_t end() const { return last_[num_queries() - 1] + 1; }

  /// Head dimensions of the query in a lane.
  const float* query(int64_t lane) const {
    return args_.q + (task_.segment->q_begin + token_of(lane)) * args_.q_row_stride +
           head_of(lane) * args_.head_dim;
  }
  /// What makes the product of query and key a score, or a fraction of the softcap.
  float score_factor() const {
    return args_.softcap > 0.0f ? args_.softmax_scale / args_.softcap
                                : args_.softmax_scale * kLog2e;
  }
  /// The score of the key without a value that the query in a lane sees too, where there is one.
  bool has_sinks() const { return args_.sinks != nullptr; }
  float sink(int64_t lane) const {
    return std::max(args_.sinks[head_of(lane)] * kLog2e, std::numeric_limits<float>::lowest());
  }

  /// Fractions of the softcap become scores.
  void cap_scores(int64_t keys, float* scores) const {
    const VF cap = set(args_.softcap * kLog2e);
    for (int64_t i = 0; i < keys * kQueries; i += kLanes)
      hn::Store(hn::Mul(cap, tanh(hn::Load(DF(), scores + i))), DF(), scores + i);
  }

  /// -infinity where a query does not see a key; scores [end - begin, kQueries].
  void hide_keys(int64_t begin, int64_t end, float* scores) const {
    const int64_t tail = num_queries() - 1;
    if (begin >= first_[tail] && end - 1 <= last_[0]) return;
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

  /// Columns of out [value_dim, kQueries] become rows of args.out, times a factor each.
  /// rows: room for four.
  void store_results(const float* out, const float* factors, float* rows) const {
    const int64_t value_dim = args_.value_dim();
    for (int64_t lane = 0; lane < num_queries(); lane += 4) {
      columns_to_rows(out + lane, kQueries, factors + lane, value_dim, rows);
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

  /// The keys that the query in lane sees, counted from the segment's first.
  void set_bounds(int64_t lane) {
    const Segment& segment = *task_.segment;
    const int64_t position = segment.kv_count - segment.q_count + token_of(lane);
    const int64_t window = args_.sliding_window;
    first_[lane] =
        static_cast<int32_t>(window > 0 ? std::max<int64_t>(0, position - window + 1) : 0);
    last_[lane] = static_cast<int32_t>(position);
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
  HWY_ALIGN int32_t first_[kQueries];  ///< first key seen
  HWY_ALIGN int32_t last_[kQueries];   ///< and the last
};

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
