#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/ssm_scan.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/logistic-inl.h"

#ifndef KVCAL_KERNELS_CPU_SSM_SCAN_ONCE
#define KVCAL_KERNELS_CPU_SSM_SCAN_ONCE
namespace kvcal::cpu {

/// Tokens whose step sizes are computed together.
constexpr int64_t kScanSteps = 64;

/// Rows [begin, end) of the heads * head_dim rows of a segment's state.
struct ScanPart {
  size_t segment = 0;
  int64_t begin = 0, end = 0;
};

/// Several tokens of one head: token i is row + i of the arrays.
struct HeadSteps {
  int64_t row = 0, count = 0, head = 0;
};

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Step size of each token and, with one A per head, the decay of the state.
HWY_INLINE void step_sizes(const SsmScanArgs& args, const HeadSteps& steps, float* dt,
                           float* decay) {
  for (int64_t i = 0; i < steps.count; ++i)
    dt[i] = args.dt.data[(steps.row + i) * args.dt.row_stride + steps.head];
  const VF bias = set(args.dt_bias ? args.dt_bias[steps.head] : 0.0f);
  const VF least = set(args.dt_min), most = set(args.dt_max);
  const VF a = set(args.a_per_state ? 0.0f : args.a[steps.head]);
  for (int64_t i = 0; i < steps.count; i += lanes()) {  // the arrays hold whole vectors
    VF size = softplus(hn::Add(hn::Load(DF(), dt + i), bias));
    size = hn::IfThenElse(hn::Lt(size, least), least, size);  // NaN stays
    size = hn::IfThenElse(hn::Gt(size, most), most, size);
    hn::Store(size, DF(), dt + i);
    hn::Store(exp(hn::Mul(size, a)), DF(), decay + i);
  }
}

/// Update of one row of the state by one token.
struct RowStep {
  float dt = 0.0f, decay = 0.0f, input = 0.0f;  ///< input: dt · x
  const float* a = nullptr;                     ///< [state_dim], where every state has its own
  const float* b = nullptr;
  const float* c = nullptr;
};

template <bool kPerState>
HWY_INLINE VF decay_of(const RowStep& step, VF a) {
  return kPerState ? exp(hn::Mul(set(step.dt), a)) : set(step.decay);
}

/// Updates a row of the state and returns its product with C.
template <bool kPerState>
HWY_INLINE float move_row(const RowStep& step, int64_t count, float* state) {
  const VF input = set(step.input);
  const float* a = kPerState ? step.a : step.b;  // read, and left alone, where there is none
  VF sum = set(0.0f);
  int64_t n = 0;
  for (; n + lanes() <= count; n += lanes()) {
    const VF kept =
        hn::Mul(decay_of<kPerState>(step, load_as_float(a + n)), load_as_float(state + n));
    const VF moved = hn::MulAdd(input, load_as_float(step.b + n), kept);
    store_from_float(moved, state + n);
    sum = hn::MulAdd(load_as_float(step.c + n), moved, sum);
  }
  if (const int64_t left = count - n; left > 0) {
    const VF kept =
        hn::Mul(decay_of<kPerState>(step, load_part(a + n, left)), load_part(state + n, left));
    const VF moved = hn::MulAdd(input, load_part(step.b + n, left), kept);
    store_part(moved, state + n, left);
    sum = hn::MulAdd(load_part(step.c + n, left), moved, sum);
  }
  return hn::GetLane(hn::SumOfLanes(DF(), sum));
}

/// Runs rows [begin, end) of one head's state (counted within the head) through several tokens.
template <bool kPerState>
HWY_NOINLINE void scan_head(const SsmScanArgs& args, const HeadSteps& steps, int64_t begin,
                            int64_t end, float* state) {
  HWY_ALIGN float dt[kScanSteps] = {};
  HWY_ALIGN float decay[kScanSteps];
  step_sizes(args, steps, dt, decay);
  const int64_t group = steps.head / (args.heads / args.groups) * args.state_dim;
  const int64_t out_stride = args.out_row_stride();
  const float d = args.d ? args.d[steps.head] : 0.0f;
  for (int64_t i = 0; i < steps.count; ++i) {
    const int64_t row = steps.row + i, first = steps.head * args.head_dim;
    const float* x = args.x.data + row * args.x.row_stride + first;
    float* out = args.out + row * out_stride + first;
    RowStep step{.dt = dt[i],
                 .decay = decay[i],
                 .a = kPerState ? args.a + steps.head * args.state_dim : nullptr,
                 .b = args.b.data + row * args.b.row_stride + group,
                 .c = args.c.data + row * args.c.row_stride + group};
    for (int64_t r = begin; r < end; ++r) {
      step.input = dt[i] * x[r];
      const float y =
          move_row<kPerState>(step, args.state_dim, state + (r - begin) * args.state_dim);
      out[r] = args.d ? y + d * x[r] : y;
    }
  }
}

/// state: from part.begin on.
void scan_part(const SsmScanArgs& args, const ScanPart& part, float* state) {
  static_assert(kScanSteps % static_cast<int64_t>(kMaxLanes) == 0);
  const Segment& segment = args.segments[part.segment];
  for (int64_t t = 0; t < segment.q_count; t += kScanSteps)
    for (int64_t r = part.begin; r < part.end;) {
      const int64_t head = r / args.head_dim, begin = r % args.head_dim;
      const int64_t end = std::min(args.head_dim, begin + part.end - r);
      const HeadSteps steps{.row = segment.q_begin + t,
                            .count = std::min(kScanSteps, segment.q_count - t),
                            .head = head};
      float* rows = state + (r - part.begin) * args.state_dim;
      args.a_per_state ? scan_head<true>(args, steps, begin, end, rows)
                       : scan_head<false>(args, steps, begin, end, rows);
      r += end - begin;
    }
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(scan_part);

/// Elements of the state in one task, few enough for the nearest cache, and its rows, few enough
/// that Mamba 1's short rows still give many tasks.
constexpr int64_t kPartStates = 8192, kPartRows = 128;

void CpuBackend::do_ssm_scan(const SsmScanArgs& args) {
  const int64_t rows = args.heads * args.head_dim;
  const int64_t block = std::clamp<int64_t>(kPartStates / args.state_dim, 1, kPartRows);
  const int64_t blocks = (rows + block - 1) / block;
  const int64_t segments = static_cast<int64_t>(args.segments.size());
  pool_.parallel_for(segments * blocks, [&](int64_t index, int thread) {
    const int64_t segment = index / blocks, begin = index % blocks * block;
    const ScanPart part{.segment = static_cast<size_t>(segment),
                        .begin = begin,
                        .end = std::min(rows, begin + block)};
    float* state = args.state ? args.state + (segment * rows + begin) * args.state_dim : nullptr;
    if (!state) {
      const int64_t count = (part.end - begin) * args.state_dim;
      state = scratch_[static_cast<size_t>(thread)].get<float>(count);
      std::fill_n(state, count, 0.0f);
    }
    HWY_DYNAMIC_DISPATCH(scan_part)(args, part, state);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
