// Queries of an attention task: their location, visible keys and output. Assigns queries to the
// lanes of vectors, and the keys that each query sees. Softmax runs along the keys (Milakov and
// Gimelshein, 2018): each query is summed by itself in a fixed order, so its result depends on
// no other query, on no thread, and not on the number of queries in a call. Small matrix
// products of attention. Queries lie in the lanes of vectors, so each is summed by itself.
// Softmax weights, truncated to bfloat16. A row of numbers as bytes with one scale. The guard is
// Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_ATTENTION_INL_H_
#undef KVCAL_KERNELS_CPU_ATTENTION_INL_H_
#else
#define KVCAL_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <numbers>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/score_rows.h"
#include "kernels/cpu/vector-inl.h"

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
  /// The query's states of RelativeLogits, [rank].
  const float* relative_states(int64_t query) const {
    const int64_t row = task_.segment->q_begin + token_of(query);
    return args_.relative.states + (row * args_.heads + head_of(query)) * args_.relative.rank;
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

  /// Slope of the query's head, per key, as of scores.
  float slope(int64_t query) const { return args_.slopes[head_of(query)] * kLog2e; }

  /// row: [value_dim].
  void store(int64_t query, const float* row) {
    with_type(args_.out_type, [&](auto out) { store_as<decltype(out)>(query, row); });
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

/// Queries of one task, one per lane.
template <int64_t kLanesOfTask>
class AttentionLanes {
 public:
  AttentionLanes(const AttentionArgs& args, const AttentionTask& task)
      : args_(args), queries_(args, task) {
    for (int64_t lane = 0; lane < kLanesOfTask; ++lane) {
      first_[lane] = queries_.first_key(lane);
      last_[lane] = queries_.last_key(lane);
      slopes_[lane] = args.slopes ? queries_.slope(lane) : 0.0f;
    }
  }
  const TaskQueries& queries() const { return queries_; }

  /// Converts fractions of the softcap to scores.
  void cap_scores(int64_t keys, float* scores) const {
    const VF cap = set(args_.softcap * TaskQueries::kLog2e);
    for (int64_t i = 0; i < keys * kLanesOfTask; i += kLanes)
      hn::Store(hn::Mul(cap, tanh(hn::Load(DF(), scores + i))), DF(), scores + i);
  }

  /// Adds to scores [end - begin, kLanesOfTask] what the distance from query to key gives.
  void add_slopes(int64_t begin, int64_t end, float* scores) const {
    for (int64_t lane = 0; lane < kLanesOfTask; lane += kLanes) {
      const VI last = hn::Load(DI(), last_ + lane);
      const VF slope = hn::Load(DF(), slopes_ + lane);
      for (int64_t key = begin; key < end; ++key) {
        float* score = scores + (key - begin) * kLanesOfTask + lane;
        const VF distance = hn::ConvertTo(DF(), hn::Sub(set_int(static_cast<int32_t>(key)), last));
        hn::Store(hn::MulAdd(slope, distance, hn::Load(DF(), score)), DF(), score);
      }
    }
  }

  /// Sets scores [end - begin, kLanesOfTask] to -infinity where a query does not see a key.
  void hide_keys(int64_t begin, int64_t end, float* scores) const {
    if (args_.selection.words)
      for (int64_t lane = 0; lane < kLanesOfTask; ++lane)
        queries_.hide_unselected(lane, begin, end - begin, scores + lane, kLanesOfTask);
    const int64_t tail = queries_.count() - 1;
    if (begin >= first_[tail] && end - 1 <= last_[0]) return;
    const VF hidden = set(-std::numeric_limits<float>::infinity());
    for (int64_t lane = 0; lane < kLanesOfTask; lane += kLanes) {
      const VI first = hn::Load(DI(), first_ + lane), last = hn::Load(DI(), last_ + lane);
      for (int64_t key = begin; key < end; ++key) {
        float* score = scores + (key - begin) * kLanesOfTask + lane;
        const VI index = set_int(static_cast<int32_t>(key));
        const auto outside = hn::Or(hn::Lt(index, first), hn::Gt(index, last));
        hn::Store(hn::IfThenElse(hn::RebindMask(DF(), outside), hidden, hn::Load(DF(), score)),
                  DF(), score);
      }
    }
  }

  /// Writes columns of out [value_dim, kLanesOfTask], times a factor each, as rows of args.out.
  /// rows: scratch for four rows.
  void store_results(const float* out, const float* factors, float* rows) {
    const int64_t value_dim = args_.value_dim();
    for (int64_t lane = 0; lane < queries_.count(); lane += 4) {
      columns_to_rows(out + lane, kLanesOfTask, factors + lane, value_dim, rows);
      const int64_t here = std::min<int64_t>(4, queries_.count() - lane);
      for (int64_t i = 0; i < here; ++i) queries_.store(lane + i, rows + i * value_dim);
    }
  }

 private:
  const AttentionArgs& args_;
  TaskQueries queries_;
  HWY_ALIGN int32_t first_[kLanesOfTask];  ///< first visible key
  HWY_ALIGN int32_t last_[kLanesOfTask];   ///< last visible key, which is the query's own
  HWY_ALIGN float slopes_[kLanesOfTask];
};

/// Vectors of queries that one step of multiply keeps in registers, and rows: 24 sums of 32
/// registers, or 12 of 16.
constexpr int64_t kStrip = 3;
constexpr int64_t kRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
static_assert(kQueries % (kStrip * kLanes) == 0);

/// out [M, kQueries] = a [M, K] · b [K, kQueries]; with factors, out · factor + a · b.
struct Product {
  const float* a = nullptr;
  int64_t row_stride = 0, step_stride = 0;  ///< a(m, k) is at m * row_stride + k * step_stride
  int64_t rows = 0, steps = 0;
  const float* b = nullptr;
  const float* factor = nullptr;  ///< [kQueries], or null
  float* out = nullptr;
};

template <int64_t kTile>
HWY_INLINE void multiply_tile(const Product& p, int64_t row, int64_t column) {
  VF sums[kTile][kStrip];
  float* out = p.out + row * kQueries + column;
  for (int64_t m = 0; m < kTile; ++m)
    for (int64_t i = 0; i < kStrip; ++i)
      sums[m][i] = p.factor ? hn::Mul(hn::Load(DF(), out + m * kQueries + i * kLanes),
                                      hn::Load(DF(), p.factor + column + i * kLanes))
                            : set(0.0f);
  const float* a = p.a + row * p.row_stride;
  const float* b = p.b + column;
  for (int64_t k = 0; k < p.steps; ++k) {
    const VF b0 = hn::Load(DF(), b), b1 = hn::Load(DF(), b + kLanes),
             b2 = hn::Load(DF(), b + 2 * kLanes);
    for (int64_t m = 0; m < kTile; ++m) {
      const VF x = set(a[m * p.row_stride]);
      sums[m][0] = hn::MulAdd(x, b0, sums[m][0]);
      sums[m][1] = hn::MulAdd(x, b1, sums[m][1]);
      sums[m][2] = hn::MulAdd(x, b2, sums[m][2]);
    }
    a += p.step_stride;
    b += kQueries;
  }
  for (int64_t m = 0; m < kTile; ++m)
    for (int64_t i = 0; i < kStrip; ++i)
      hn::Store(sums[m][i], DF(), out + m * kQueries + i * kLanes);
}

inline HWY_NOINLINE void multiply(const Product& p) {
  for (int64_t column = 0; column < kQueries; column += kStrip * kLanes) {
    int64_t row = 0;
    for (; row + kRows <= p.rows; row += kRows) multiply_tile<kRows>(p, row, column);
    for (; row + 2 <= p.rows; row += 2) multiply_tile<2>(p, row, column);
    for (; row < p.rows; ++row) multiply_tile<1>(p, row, column);
  }
}

/// Truncates a float32 to the digits of a bfloat16.
HWY_INLINE VF cut(VF v) {
  return hn::BitCast(DF(), hn::And(hn::BitCast(DU(), v), hn::Set(DU(), 0xffff0000u)));
}

/// Writes the upper halves of the lanes of two vectors, one vector after the other.
HWY_INLINE void store_cut(VF first, VF second, BF16* out) {
#if HWY_TARGET == HWY_SCALAR
  store_low_halves(hn::BitCast(DI(), hn::ShiftRight<16>(hn::BitCast(DU(), first))), &out[0].bits);
  store_low_halves(hn::BitCast(DI(), hn::ShiftRight<16>(hn::BitCast(DU(), second))), &out[1].bits);
#else
  const hn::Repartition<uint16_t, DF> halves;
  hn::StoreU(hn::ConcatOdd(halves, hn::BitCast(halves, second), hn::BitCast(halves, first)), halves,
             &out->bits);
#endif
}

/// 2^x for x < 127, within 1e-4, less than the truncation's 2e-3; 0 or subnormal below -126, 0 at
/// -infinity; NaN stays NaN. The polynomials interpolate 2^f at the Chebyshev nodes.
HWY_INLINE VF weight_of(VF x) {
#if HWY_TARGET <= HWY_AVX3
  const VF f{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF)};  // in [0, 1)
  const VF sum = polynomial(f, 0.07896726f, 0.22469316f, 0.69632477f, 0.99990029f);
  return VF{_mm512_scalef_ps(sum.raw, x.raw)};
#else
  const VF shift = set(kWholeAndBias);
#if HWY_TARGET == HWY_SCALAR
  const VF clamped = hn::IfThenElse(hn::Lt(x, set(-127.0f)), set(-127.0f), x);  // its Max drops NaN
#else
  const VF clamped = hn::Max(set(-127.0f), x);
#endif
  const VF shifted = hn::Add(clamped, shift);
  const VF f = hn::Sub(clamped, hn::Sub(shifted, shift));
  VF sum = set(kPowerOfTwo[0]);
  for (const int i : {1, 2, 3}) sum = hn::MulAdd(sum, f, set(kPowerOfTwo[i]));
  return hn::Mul(sum, as_float(hn::ShiftLeft<23>(as_int(shifted))));
#endif
}

/// Writes the bytes offset + x / scale of a row, and gives its scale. count is a multiple of the
/// lanes.
template <class In>
HWY_INLINE float write_bytes(const In* x, int64_t count, int32_t offset, uint8_t* out) {
  VI largest = set_int(0);
  for (int64_t i = 0; i < count; i += lanes())
    largest = hn::Max(largest, hn::And(as_int(load_as_float(x + i)), set_int(0x7fffffff)));
  const ByteScale bytes(hn::GetLane(as_float(hn::MaxOfLanes(DI(), largest))));
  const VF inverse = set(bytes.inverse);
  for (int64_t i = 0; i < count; i += lanes()) {
    const VI nearest = hn::NearestInt(hn::Mul(inverse, load_as_float(x + i)));
    hn::StoreU(hn::TruncateTo(DU8(), hn::BitCast(DU(), hn::Add(nearest, set_int(offset)))), DU8(),
               out + i);
  }
  return bytes.scale;
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
