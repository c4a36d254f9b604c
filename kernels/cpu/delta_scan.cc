#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/delta_scan.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/logistic-inl.h"

#ifndef KVCAL_KERNELS_CPU_DELTA_SCAN_ONCE
#define KVCAL_KERNELS_CPU_DELTA_SCAN_ONCE
namespace kvcal::cpu {

/// Columns of a state in one task; columns are independent.
constexpr int64_t kDeltaColumns = 64;
/// Tokens whose gates are computed together.
constexpr int64_t kDeltaSteps = 64;

/// Columns [begin, end) of one value head's state.
struct DeltaPart {
  size_t segment = 0;
  int64_t head = 0;
  int64_t begin = 0, end = 0;
};

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Vectors of columns that one step processes together, and their number of columns.
constexpr int64_t kStrip = 4;
constexpr int64_t kWidth = kStrip * HWY_LANES(float);
static_assert(kDeltaColumns % kWidth == 0);

/// out = x · scale, normalized to length 1 first where the rule requires it.
HWY_INLINE void unit_row(const float* x, int64_t count, bool normalize, float scale, float* out) {
  if (normalize) {
    VF sum = set(0.0f);
    int64_t i = 0;
    for (; i + lanes() <= count; i += lanes()) {
      const VF v = load_as_float(x + i);
      sum = hn::MulAdd(v, v, sum);
    }
    if (i < count) {
      const VF v = load_part(x + i, count - i);
      sum = hn::MulAdd(v, v, sum);
    }
    scale /= std::sqrt(hn::GetLane(hn::SumOfLanes(DF(), sum)) + 1e-6f);
  }
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * scale;
}

/// Decay and beta of several tokens.
struct Gates {
  HWY_ALIGN float decay[kDeltaSteps] = {};
  HWY_ALIGN float beta[kDeltaSteps] = {};
};

HWY_INLINE void gates_of(const DeltaScanArgs& args, int64_t head, int64_t row, int64_t count,
                         Gates& gates) {
  for (int64_t i = 0; i < count; ++i) {
    gates.decay[i] = args.g.data[(row + i) * args.g.row_stride + head];
    gates.beta[i] = args.beta.data[(row + i) * args.beta.row_stride + head];
  }
  const VF rate = set(args.decay_rate ? args.decay_rate[head] : 1.0f);
  const VF bias = set(args.g_bias ? args.g_bias[head] : 0.0f);
  for (int64_t i = 0; i < count; i += lanes()) {  // the arrays hold whole vectors
    VF g = hn::Load(DF(), gates.decay + i);
    if (args.decay_rate) g = hn::Mul(rate, softplus(hn::Add(g, bias)));
    hn::Store(exp(g), DF(), gates.decay + i);
    if (args.logistic_beta)
      hn::Store(hn::Mul(set(args.beta_range),
                        gate_of<GateFunction::kSigmoid>(hn::Load(DF(), gates.beta + i))),
                DF(), gates.beta + i);
  }
}

/// One token: the input q and k [k_dim], v and y [kWidth].
struct DeltaStep {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  float* y = nullptr;
  float decay = 0.0f, beta = 0.0f;
};

/// beta · (v - decay · Sᵀk) for state [k_dim, kWidth]. Sums even and odd rows separately.
HWY_INLINE void correction(const DeltaStep& step, const float* state, int64_t k_dim,
                           VF (&delta)[kStrip]) {
  VF even[kStrip], odd[kStrip];
  for (int64_t j = 0; j < kStrip; ++j) even[j] = odd[j] = set(0.0f);
  const auto add_row = [&](int64_t i, VF(&sums)[kStrip]) HWY_ATTR {
    const VF k = set(step.k[i]);
    for (int64_t j = 0; j < kStrip; ++j)
      sums[j] = hn::MulAdd(k, hn::Load(DF(), state + i * kWidth + j * lanes()), sums[j]);
  };
  int64_t i = 0;
  for (; i + 2 <= k_dim; i += 2) {
    add_row(i, even);
    add_row(i + 1, odd);
  }
  if (i < k_dim) add_row(i, even);
  for (int64_t j = 0; j < kStrip; ++j) {
    const VF known = hn::Mul(set(step.decay), hn::Add(even[j], odd[j]));
    delta[j] = hn::Mul(set(step.beta), hn::Sub(hn::Load(DF(), step.v + j * lanes()), known));
  }
}

HWY_INLINE void delta_step(const DeltaStep& step, int64_t k_dim, float* state) {
  VF delta[kStrip], y[kStrip];
  correction(step, state, k_dim, delta);
  for (int64_t j = 0; j < kStrip; ++j) y[j] = set(0.0f);
  const VF decay = set(step.decay);
  for (int64_t i = 0; i < k_dim; ++i) {
    const VF k = set(step.k[i]), q = set(step.q[i]);
    for (int64_t j = 0; j < kStrip; ++j) {
      float* at = state + i * kWidth + j * lanes();
      const VF moved = hn::MulAdd(k, delta[j], hn::Mul(decay, hn::Load(DF(), at)));
      hn::Store(moved, DF(), at);
      y[j] = hn::MulAdd(q, moved, y[j]);
    }
  }
  for (int64_t j = 0; j < kStrip; ++j) hn::Store(y[j], DF(), step.y + j * lanes());
}

/// Runs columns [begin, begin + width) of a state, width <= kWidth, through a segment. scratch:
/// kWidth + 2 floats for each of k_dim.
HWY_NOINLINE void scan_strip(const DeltaScanArgs& args, const DeltaPart& part, int64_t begin,
                             int64_t width, float* scratch) {
  const int64_t k_dim = args.k_dim, size = k_dim * args.v_dim;
  const int64_t out_stride = args.out_row_stride();
  const int64_t k_head = part.head / (args.v_heads / args.k_heads);
  const size_t bytes = static_cast<size_t>(width) * sizeof(float);
  float* own = args.state
                   ? args.state +
                         (static_cast<int64_t>(part.segment) * args.v_heads + part.head) * size +
                         begin
                   : nullptr;
  float* q = scratch + k_dim * kWidth;
  std::fill_n(scratch, k_dim * kWidth, 0.0f);
  if (own)
    for (int64_t i = 0; i < k_dim; ++i)
      std::memcpy(scratch + i * kWidth, own + i * args.v_dim, bytes);

  Gates gates;
  HWY_ALIGN float v[kWidth] = {}, y[kWidth];
  const float scale = 1.0f / std::sqrt(static_cast<float>(k_dim));
  const Segment& segment = args.segments[part.segment];
  for (int64_t t = 0; t < segment.q_count; ++t) {
    const int64_t row = segment.q_begin + t, column = part.head * args.v_dim + begin;
    if (t % kDeltaSteps == 0)
      gates_of(args, part.head, row, std::min(kDeltaSteps, segment.q_count - t), gates);
    unit_row(args.q.data + row * args.q.row_stride + k_head * k_dim, k_dim, args.normalize, scale,
             q);
    unit_row(args.k.data + row * args.k.row_stride + k_head * k_dim, k_dim, args.normalize, 1.0f,
             q + k_dim);
    std::memcpy(v, args.v.data + row * args.v.row_stride + column, bytes);
    delta_step({.q = q,
                .k = q + k_dim,
                .v = v,
                .y = y,
                .decay = gates.decay[t % kDeltaSteps],
                .beta = gates.beta[t % kDeltaSteps]},
               k_dim, scratch);
    std::memcpy(args.out + row * out_stride + column, y, bytes);
  }
  if (own)
    for (int64_t i = 0; i < k_dim; ++i)
      std::memcpy(own + i * args.v_dim, scratch + i * kWidth, bytes);
}

void delta_part(const DeltaScanArgs& args, const DeltaPart& part, float* scratch) {
  for (int64_t column = part.begin; column < part.end; column += kWidth)
    scan_strip(args, part, column, std::min(kWidth, part.end - column), scratch);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(delta_part);

void CpuBackend::do_delta_scan(const DeltaScanArgs& args) {
  const int64_t blocks = (args.v_dim + kDeltaColumns - 1) / kDeltaColumns;
  const int64_t tasks = static_cast<int64_t>(args.segments.size()) * args.v_heads * blocks;
  pool_.parallel_for(tasks, [&](int64_t index, int thread) {
    const int64_t head = index / blocks, begin = index % blocks * kDeltaColumns;
    const DeltaPart part{.segment = static_cast<size_t>(head / args.v_heads),
                         .head = head % args.v_heads,
                         .begin = begin,
                         .end = std::min(args.v_dim, begin + kDeltaColumns)};
    float* scratch =
        scratch_[static_cast<size_t>(thread)].get<float>((kDeltaColumns + 2) * args.k_dim);
    HWY_DYNAMIC_DISPATCH(delta_part)(args, part, scratch);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
