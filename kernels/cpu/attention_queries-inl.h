// Queries of an attention task: their location, visible keys and output. The guard is Highway's,
// see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_ATTENTION_QUERIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_ATTENTION_QUERIES_INL_H_
#undef KVCAL_KERNELS_CPU_ATTENTION_QUERIES_INL_H_
#else
#define KVCAL_KERNELS_CPU_ATTENTION_QUERIES_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <numbers>

#include "kernels/cpu/amax-inl.h"
#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/kv_read-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

constexpr int64_t kLanes = HWY_LANES(float);

/// Multiplies count elements, in whole vectors.
HWY_INLINE void multiply_by(VF factor, float* x, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes)
    hn::Store(hn::Mul(factor, hn::Load(DF(), x + i)), DF(), x + i);
}

/// Scores are base-2 exponents, so that weights are powers of two. Indices beyond the last query
/// repeat the first; their results are not read.
class TaskQueries {
 public:
  static constexpr float kLog2e = std::numbers::log2e_v<float>;

  TaskQueries(const AttentionArgs& args, const AttentionTask& task) : args_(args), task_(task) {}

  int64_t count() const { return task_.tokens * task_.heads; }

  /// Last key that a query sees, counted from the segment's first.
  int32_t last_key(int64_t query) const {
    return static_cast<int32_t>(task_.segment->kv_count - task_.segment->q_count + token_of(query));
  }
  int32_t first_key(int64_t query) const {
    const int64_t window = args_.sliding_window;
    return window > 0 ? static_cast<int32_t>(std::max<int64_t>(0, last_key(query) - window + 1))
                      : 0;
  }
  /// The query's row of the selection, or null.
  const uint32_t* selected(int64_t query) const {
    return args_.selection.row(task_.segment->q_begin + token_of(query));
  }
  /// Sets to -infinity scores of visible keys that the query does not select; first: the key of
  /// score 0. Scores of neighbouring keys lie stride apart.
  void hide_unselected(int64_t query, int64_t first, int64_t keys, float* scores,
                       int64_t stride) const {
    const uint32_t* row = selected(query);
    const int64_t end = std::min(first + keys, int64_t{last_key(query)} + 1);
    for (int64_t key = first; key < end; ++key)
      if (!KeySelection::holds(row, key))
        scores[(key - first) * stride] = -std::numeric_limits<float>::infinity();
  }
  /// Keys that at least one query sees: [begin, end).
  int64_t begin() const { return first_key(0); }
  int64_t end() const { return last_key(count() - 1) + 1; }

  /// [head_dim]
  const float* query(int64_t query) const {
    return args_.q + (task_.segment->q_begin + token_of(query)) * args_.q_row_stride +
           head_of(query) * args_.head_dim;
  }
  /// Factor from the product of query and key to a score, or to a fraction of the softcap.
  float score_factor() const {
    return args_.softcap > 0.0f ? args_.softmax_scale / args_.softcap
                                : args_.softmax_scale * kLog2e;
  }
  /// Scale of the cache's elements, of args.k_scales or args.v_scales.
  float scale_of(const float* scales) const {
    return is_fp8(args_.kv_dtype) ? scales[task_.kv_head] : 1.0f;
  }
  /// Whether there are sinks: scores of an extra key without a value that every query sees.
  bool has_sinks() const { return args_.sinks != nullptr; }
  float sink(int64_t query) const {
    return std::max(args_.sinks[head_of(query)] * kLog2e, std::numeric_limits<float>::lowest());
  }

  /// row: [value_dim].
  void store(int64_t query, const float* row) {
    switch (args_.out_type) {
      case ComputeType::kFloat32:
        return store_as<float>(query, row);
      case ComputeType::kBFloat16:
        return store_as<BF16>(query, row);
      case ComputeType::kFloat16:
        return store_as<F16>(query, row);
    }
  }
  /// Magnitudes of the stored rows, where requested.
  const Magnitudes& seen() const { return seen_; }

 private:
  template <class Out>
  void store_as(int64_t query, const float* row) {
    const int64_t width = args_.value_dim();
    const int64_t at = (task_.segment->q_begin + token_of(query)) * args_.heads + head_of(query);
    Out* out = static_cast<Out*>(args_.out) + at * width;
    convert_row(row, width, out);
    if (args_.seen) seen_.merge(magnitudes_of(out, width));  // while it is near
  }
  int64_t known(int64_t query) const { return query < count() ? query : 0; }
  int64_t token_of(int64_t query) const { return task_.first_token + known(query) / task_.heads; }
  int64_t head_of(int64_t query) const { return task_.first_head + known(query) % task_.heads; }

  const AttentionArgs& args_;
  const AttentionTask& task_;
  Magnitudes seen_;
};

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
