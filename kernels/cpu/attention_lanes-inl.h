// Assigns queries to the lanes of vectors, and the keys that each query sees. Softmax runs along
// the keys (Milakov and Gimelshein, 2018): each query is summed by itself in a fixed order, so its
// result depends on no other query, on no thread, and not on the number of queries in a call. The
// guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_ATTENTION_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_ATTENTION_LANES_INL_H_
#undef KVCAL_KERNELS_CPU_ATTENTION_LANES_INL_H_
#else
#define KVCAL_KERNELS_CPU_ATTENTION_LANES_INL_H_
#endif

#include "kernels/cpu/attention_queries-inl.h"
#include "kernels/cpu/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Queries of one task, one per lane.
template <int64_t kQueries>
class AttentionLanes {
 public:
  AttentionLanes(const AttentionArgs& args, const AttentionTask& task)
      : args_(args), queries_(args, task) {
    for (int64_t lane = 0; lane < kQueries; ++lane) {
      first_[lane] = queries_.first_key(lane);
      last_[lane] = queries_.last_key(lane);
    }
  }
  const TaskQueries& queries() const { return queries_; }

  /// Converts fractions of the softcap to scores.
  void cap_scores(int64_t keys, float* scores) const {
    const VF cap = set(args_.softcap * TaskQueries::kLog2e);
    for (int64_t i = 0; i < keys * kQueries; i += kLanes)
      hn::Store(hn::Mul(cap, tanh(hn::Load(DF(), scores + i))), DF(), scores + i);
  }

  /// Sets scores [end - begin, kQueries] to -infinity where a query does not see a key.
  void hide_keys(int64_t begin, int64_t end, float* scores) const {
    if (args_.selection.words)
      for (int64_t lane = 0; lane < kQueries; ++lane)
        queries_.hide_unselected(lane, begin, end - begin, scores + lane, kQueries);
    const int64_t tail = queries_.count() - 1;
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

  /// Writes columns of out [value_dim, kQueries], times a factor each, as rows of args.out. rows:
  /// scratch for four rows.
  void store_results(const float* out, const float* factors, float* rows) {
    const int64_t value_dim = args_.value_dim();
    for (int64_t lane = 0; lane < queries_.count(); lane += 4) {
      columns_to_rows(out + lane, kQueries, factors + lane, value_dim, rows);
      const int64_t here = std::min<int64_t>(4, queries_.count() - lane);
      for (int64_t i = 0; i < here; ++i) queries_.store(lane + i, rows + i * value_dim);
    }
  }

 private:
  const AttentionArgs& args_;
  TaskQueries queries_;
  HWY_ALIGN int32_t first_[kQueries];  ///< first visible key
  HWY_ALIGN int32_t last_[kQueries];   ///< last visible key
};

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
