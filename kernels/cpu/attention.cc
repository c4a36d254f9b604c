#include <algorithm>
#include <array>
#include <limits>
#include <numbers>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/kv_read-inl.h"
#include "kernels/cpu/vector-inl.h"

// Attention in blocks, with the running softmax of Milakov and Gimelshein (2018). Queries lie
// across the lanes of vectors, and keys, values and dimensions are walked one by one, so each query
// is summed by itself in a fixed order: its result depends on no other query, on no thread, and not
// on how many queries a call has.
#ifndef KVCAL_KERNELS_CPU_ATTENTION_ONCE
#define KVCAL_KERNELS_CPU_ATTENTION_ONCE
namespace kvcal::cpu {

/// Queries handled together: consecutive tokens times the heads that share a KV head.
constexpr int64_t kQueries = 48;
/// Keys in a block; blocks begin at multiples of it, counted from the segment's first key.
constexpr int64_t kKeys = 64;

struct AttentionTask {
  const Segment* segment = nullptr;
  int64_t kv_head = 0;
  int64_t first_token = 0, tokens = 0;  ///< within the segment
  int64_t first_head = 0, heads = 0;    ///< tokens * heads <= kQueries
};

inline int64_t attention_scratch_size(int64_t head_dim) {
  return head_dim * (2 * kQueries + 2 * kKeys) + kKeys * kQueries + 5 * kQueries;
}

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

constexpr int64_t kLanes = HWY_LANES(float);
/// Vectors of queries that one step of multiply keeps in registers, and rows: 24 sums of 32
/// registers, or 12 of 16.
constexpr int64_t kStrip = 3;
constexpr int64_t kRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
static_assert(kQueries % (kStrip * kLanes) == 0);

/// out [M, kQueries] = a [M, K] · b [K, kQueries], or with a factor a query, out · factor + a · b.
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

HWY_NOINLINE void multiply(const Product& p) {
  for (int64_t column = 0; column < kQueries; column += kStrip * kLanes) {
    int64_t row = 0;
    for (; row + kRows <= p.rows; row += kRows) multiply_tile<kRows>(p, row, column);
    for (; row + 2 <= p.rows; row += 2) multiply_tile<2>(p, row, column);
    for (; row < p.rows; ++row) multiply_tile<1>(p, row, column);
  }
}

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

/// out[d * kQueries + i] = scale · rows[i][d] for four rows.
HWY_INLINE void rows_to_columns(const float* const* rows, int64_t count, float scale, float* out) {
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
    hn::Store(r0, d4, out + d * kQueries);
    hn::Store(r1, d4, out + (d + 1) * kQueries);
    hn::Store(r2, d4, out + (d + 2) * kQueries);
    hn::Store(r3, d4, out + (d + 3) * kQueries);
  }
#endif
  for (; d < count; ++d)
    for (int64_t i = 0; i < 4; ++i) out[d * kQueries + i] = rows[i][d] * scale;
}

/// out[i * count + d] = in[d * kQueries + i] / divisors[i] for four rows.
HWY_INLINE void columns_to_rows(const float* in, const float* divisors, int64_t count, float* out) {
  int64_t d = 0;
#if HWY_TARGET != HWY_SCALAR
  const D4 d4;
  const V4 divisor = hn::Load(d4, divisors);
  for (; d + 4 <= count; d += 4) {
    V4 c0 = hn::Div(hn::Load(d4, in + d * kQueries), divisor);
    V4 c1 = hn::Div(hn::Load(d4, in + (d + 1) * kQueries), divisor);
    V4 c2 = hn::Div(hn::Load(d4, in + (d + 2) * kQueries), divisor);
    V4 c3 = hn::Div(hn::Load(d4, in + (d + 3) * kQueries), divisor);
    transpose(c0, c1, c2, c3);
    hn::StoreU(c0, d4, out + d);
    hn::StoreU(c1, d4, out + count + d);
    hn::StoreU(c2, d4, out + 2 * count + d);
    hn::StoreU(c3, d4, out + 3 * count + d);
  }
#endif
  for (; d < count; ++d)
    for (int64_t i = 0; i < 4; ++i) out[i * count + d] = in[d * kQueries + i] / divisors[i];
}

/// One task: its queries against all keys they see.
class Attend {
 public:
  Attend(const AttentionArgs& args, const AttentionTask& task, float* scratch)
      : args_(args), task_(task), head_dim_(args.head_dim) {
    q_ = take(scratch, head_dim_ * kQueries);
    out_ = take(scratch, head_dim_ * kQueries);
    scores_ = take(scratch, kKeys * kQueries);
    max_ = take(scratch, kQueries);
    sum_ = take(scratch, kQueries);
    correction_ = take(scratch, kQueries);
    first_ = reinterpret_cast<int32_t*>(take(scratch, kQueries));
    last_ = reinterpret_cast<int32_t*>(take(scratch, kQueries));
    k_ = take(scratch, head_dim_ * kKeys);
    v_ = take(scratch, head_dim_ * kKeys);
    for (int64_t lane = 0; lane < kQueries; ++lane) set_bounds(lane);
  }

  void run() {
    load_queries();
    std::fill_n(out_, head_dim_ * kQueries, 0.0f);
    std::fill_n(sum_, kQueries, 0.0f);
    std::fill_n(max_, kQueries, std::numeric_limits<float>::lowest());
    const int64_t begin = first_[0], end = last_[num_queries() - 1] + 1;
    for (int64_t block = begin / kKeys * kKeys; block < end; block += kKeys)
      add_keys(std::max(block, begin), std::min(block + kKeys, end));
    store_results();
  }

 private:
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

  /// Queries become columns, times the softmax scale in units of powers of two.
  void load_queries() {
    const float scale = args_.softmax_scale * std::numbers::log2e_v<float>;
    for (int64_t lane = 0; lane < kQueries; lane += 4) {
      const float* rows[4] = {query(lane), query(lane + 1), query(lane + 2), query(lane + 3)};
      rows_to_columns(rows, head_dim_, scale, q_ + lane);
    }
  }

  /// Rows [begin, end) of keys or values as float32: in place where they are that already.
  const float* read(const void* rows, const float* scales, int64_t begin, int64_t end, float* tile,
                    int64_t& stride) const {
    const int64_t row = task_.segment->kv_begin + begin;
    const int64_t element = (row * args_.kv_heads + task_.kv_head) * head_dim_;
    const int64_t row_stride = args_.kv_heads * head_dim_;
    if (args_.kv_dtype == KvDType::kFloat32) {
      stride = row_stride;
      return static_cast<const float*>(rows) + element;
    }
    stride = head_dim_;
    read_kv(
        {.dtype = args_.kv_dtype,
         .first = static_cast<const std::byte*>(rows) + element * bytes_per_element(args_.kv_dtype),
         .row_stride = row_stride,
         .rows = end - begin,
         .head_dim = head_dim_,
         .scale = scales ? scales[task_.kv_head] : 1.0f},
        tile);
    return tile;
  }

  /// Folds the keys [begin, end) of one block into sums and maxima.
  void add_keys(int64_t begin, int64_t end) {
    int64_t stride = 0;
    const float* k = read(args_.k, args_.k_scales, begin, end, k_, stride);
    multiply({.a = k,
              .row_stride = stride,
              .step_stride = 1,
              .rows = end - begin,
              .steps = head_dim_,
              .b = q_,
              .out = scores_});
    const int64_t tail = num_queries() - 1;
    if (begin < first_[tail] || end - 1 > last_[0]) hide_keys(begin, end);
    for (int64_t lane = 0; lane < kQueries; lane += kStrip * kLanes) soften(end - begin, lane);
    const float* v = read(args_.v, args_.v_scales, begin, end, v_, stride);
    multiply({.a = v,
              .row_stride = 1,
              .step_stride = stride,
              .rows = head_dim_,
              .steps = end - begin,
              .b = scores_,
              .factor = correction_,
              .out = out_});
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
    float* rows = k_;  // no longer needed
    for (int64_t lane = 0; lane < num_queries(); lane += 4) {
      columns_to_rows(out_ + lane, sum_ + lane, head_dim_, rows);
      const int64_t here = std::min<int64_t>(4, num_queries() - lane);
      for (int64_t i = 0; i < here; ++i) store_row(lane + i, rows + i * head_dim_);
    }
  }

  void store_row(int64_t lane, const float* row) const {
    const int64_t out =
        ((task_.segment->q_begin + token_of(lane)) * args_.heads + head_of(lane)) * head_dim_;
    switch (args_.out_type) {
      case ComputeType::kFloat32:
        return convert_row(row, head_dim_, static_cast<float*>(args_.out) + out);
      case ComputeType::kBFloat16:
        return convert_row(row, head_dim_, static_cast<BF16*>(args_.out) + out);
      case ComputeType::kFloat16:
        return convert_row(row, head_dim_, static_cast<F16*>(args_.out) + out);
    }
  }

  const AttentionArgs& args_;
  const AttentionTask& task_;
  const int64_t head_dim_;
  float *q_, *out_;                  ///< [head_dim, kQueries]
  float* scores_;                    ///< [kKeys, kQueries]: scores, then weights
  float *max_, *sum_, *correction_;  ///< [kQueries]
  int32_t *first_, *last_;           ///< [kQueries]: keys seen
  float *k_, *v_;                    ///< [kKeys, head_dim]
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

void CpuBackend::attention(const AttentionArgs& args) {
  check_attention(args);
  const std::vector<AttentionTask> tasks = cut(args);
  pool_.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t index, int thread) {
    float* scratch =
        scratch_[static_cast<size_t>(thread)].get<float>(attention_scratch_size(args.head_dim));
    HWY_DYNAMIC_DISPATCH(attend)(args, tasks[static_cast<size_t>(index)], scratch);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
