#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/scan.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activation-inl.h"

#ifndef KVCAL_KERNELS_CPU_SCAN_ONCE
#define KVCAL_KERNELS_CPU_SCAN_ONCE
namespace kvcal::cpu {

/// Rows [begin, end) of one segment, counted from its first, and channels [first, last).
struct ConvPart {
  size_t segment = 0;
  int64_t begin = 0, end = 0;
  int64_t first = 0, last = 0;
};

/// Row p of a segment from channel `first` on; rows before it are the state's, or zeros.
inline const float* conv_row(const CausalConvArgs& args, const ConvPart& part, int64_t p,
                             const float* zeros) {
  if (p >= 0)
    return args.x.data + (args.segments[part.segment].q_begin + p) * args.x.row_stride + part.first;
  if (!args.state) return zeros;
  const int64_t before = args.kernel - 1;
  return args.state + ((static_cast<int64_t>(part.segment) + 1) * before + p) * args.channels +
         part.first;
}

/// Columns of a state in one task of delta_scan; columns are independent.
constexpr int64_t kDeltaColumns = 64;
/// Tokens whose gates or step sizes are computed together.
constexpr int64_t kScanSteps = 64;

/// Columns [begin, end) of the state of one value head (delta_scan), or rows [begin, end) of the
/// heads * head_dim rows of a segment's state (ssm_scan).
struct StatePart {
  size_t segment = 0;
  int64_t head = 0;
  int64_t begin = 0, end = 0;
};

/// Several tokens of one head: token i is row + i of the arrays.
struct HeadSteps {
  int64_t row = 0, count = 0, head = 0;
};

}  // namespace kvcal::cpu
#endif  // KVCAL_KERNELS_CPU_SCAN_ONCE

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// out = bias + sum over j of weight(j) · rows[j], weight [kernel, width].
template <bool kSilu>
HWY_INLINE void convolve_row(const std::vector<const float*>& rows, const float* weight,
                             const float* bias, int64_t width, float* out) {
  for_vectors(width, [&](auto at) HWY_ATTR {
    VF sum = at.load(bias);
    const float* w = weight;
    for (const float* row : rows) {
      sum = hn::MulAdd(at.load(w), at.load(row), sum);
      w += width;
    }
    at.store(kSilu ? gate_of<GateFunction::kSilu>(sum) : sum, out);
  });
}

void convolve_part(const CausalConvArgs& args, const ConvPart& part) {
  const int64_t width = part.last - part.first, kernel = args.kernel;
  const std::vector<float> zeros(static_cast<size_t>(width));
  std::vector<float> weight(static_cast<size_t>(width * kernel));  // a row a tap
  for (int64_t i = 0; i < width; ++i)
    for (int64_t j = 0; j < kernel; ++j)
      weight[static_cast<size_t>(j * width + i)] = args.weight[(part.first + i) * kernel + j];
  const float* bias = args.bias ? args.bias + part.first : zeros.data();
  const int64_t stride = args.out_row_stride();
  std::vector<const float*> rows(static_cast<size_t>(kernel));
  for (int64_t t = part.begin; t < part.end; ++t) {
    for (int64_t j = 0; j < kernel; ++j)
      rows[static_cast<size_t>(j)] = conv_row(args, part, t - kernel + 1 + j, zeros.data());
    float* out = args.out + (args.segments[part.segment].q_begin + t) * stride + part.first;
    args.silu ? convolve_row<true>(rows, weight.data(), bias, width, out)
              : convolve_row<false>(rows, weight.data(), bias, width, out);
  }
}

/// Vectors of columns that one step processes together, and their number of columns.
constexpr int64_t kStrip = 4;
constexpr int64_t kWidth = kStrip * HWY_LANES(float);
static_assert(kDeltaColumns % kWidth == 0);

/// out = x · scale, normalized to length 1 first where the rule requires it.
HWY_INLINE void unit_row(const float* x, int64_t count, bool normalize, float scale, float* out) {
  if (normalize) {
    PartialSums sums;
    for_vectors(count, [&](auto at) HWY_ATTR {
      const VF v = at.load(x);
      sums.of(at.i) = hn::MulAdd(v, v, sums.of(at.i));
    });
    scale /= std::sqrt(sums.total() + 1e-6f);
  }
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * scale;
}

/// Decay, unless it is by key, and beta of several tokens.
struct Gates {
  HWY_ALIGN float decay[kScanSteps] = {};
  HWY_ALIGN float beta[kScanSteps] = {};
};

/// exp(g), where decay_rate is given of g's softplus, or of its sigmoid above decay_floor.
HWY_INLINE VF decay_of(const DeltaScanArgs& args, int64_t head, VF g, VF bias) {
  if (!args.decay_rate) return exp(g);
  const VF rate = set(args.decay_rate[head]), moved = hn::Add(g, bias);
  if (args.decay_floor == 0.0f) return exp(hn::Mul(rate, softplus(moved)));
  const VF share = gate_of<GateFunction::kSigmoid>(hn::Neg(hn::Mul(rate, moved)));
  return exp(hn::Mul(set(args.decay_floor), share));
}

HWY_INLINE void gates_of(const DeltaScanArgs& args, int64_t head, int64_t row, int64_t count,
                         Gates& gates) {
  for (int64_t i = 0; i < count; ++i) {
    if (!args.decay_per_key) gates.decay[i] = args.g.data[(row + i) * args.g.row_stride + head];
    gates.beta[i] = args.beta.data[(row + i) * args.beta.row_stride + head];
  }
  const VF bias = set(args.g_bias && !args.decay_per_key ? args.g_bias[head] : 0.0f);
  for (int64_t i = 0; i < count; i += lanes()) {  // the arrays hold whole vectors
    if (!args.decay_per_key)
      hn::Store(decay_of(args, head, hn::Load(DF(), gates.decay + i), bias), DF(), gates.decay + i);
    if (args.logistic_beta)
      hn::Store(hn::Mul(set(args.beta_range),
                        gate_of<GateFunction::kSigmoid>(hn::Load(DF(), gates.beta + i))),
                DF(), gates.beta + i);
  }
}

/// Decays of one token's keys, and k times them.
HWY_INLINE void key_decays(const DeltaScanArgs& args, int64_t head, int64_t row, const float* k,
                           float* decays, float* faded_k) {
  const float* g = args.g.data + row * args.g.row_stride + head * args.k_dim;
  const std::vector<float> none(args.g_bias ? 0 : static_cast<size_t>(args.k_dim));
  const float* bias = args.g_bias ? args.g_bias + head * args.k_dim : none.data();
  for_vectors(args.k_dim, [&](auto at) HWY_ATTR {
    const VF decay = decay_of(args, head, at.load(g), at.load(bias));
    const VF faded = hn::Mul(decay, at.load(k));
    at.store(decay, decays);
    at.store(faded, faded_k);
  });
}

/// One token: the input q and k [k_dim], v and y [kWidth].
struct DeltaStep {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  float* y = nullptr;
  const float* decays = nullptr;   ///< [k_dim]; null: decay, of all
  const float* faded_k = nullptr;  ///< k times them
  float decay = 0.0f, beta = 0.0f;
};

/// beta · (v - decay · Sᵀk) for state [k_dim, kWidth]. Sums even and odd rows separately.
template <bool kPerKey>
HWY_INLINE void correction(const DeltaStep& step, const float* state, int64_t k_dim,
                           VF (&delta)[kStrip]) {
  VF even[kStrip], odd[kStrip];
  for (int64_t j = 0; j < kStrip; ++j) even[j] = odd[j] = set(0.0f);
  const auto add_row = [&](int64_t i, VF(&sums)[kStrip]) HWY_ATTR {
    const VF k = set(kPerKey ? step.faded_k[i] : step.k[i]);
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
    VF known = hn::Add(even[j], odd[j]);
    if (!kPerKey) known = hn::Mul(set(step.decay), known);
    delta[j] = hn::Mul(set(step.beta), hn::Sub(hn::Load(DF(), step.v + j * lanes()), known));
  }
}

template <bool kPerKey>
HWY_INLINE void delta_step(const DeltaStep& step, int64_t k_dim, float* state) {
  VF delta[kStrip], y[kStrip];
  correction<kPerKey>(step, state, k_dim, delta);
  for (int64_t j = 0; j < kStrip; ++j) y[j] = set(0.0f);
  for (int64_t i = 0; i < k_dim; ++i) {
    const VF k = set(step.k[i]), q = set(step.q[i]);
    const VF decay = set(kPerKey ? step.decays[i] : step.decay);
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
/// kWidth + 4 floats for each of k_dim.
HWY_NOINLINE void scan_strip(const DeltaScanArgs& args, const StatePart& part, int64_t begin,
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
  float* const q = scratch + k_dim * kWidth;
  float *const k = q + k_dim, *const decays = k + k_dim, *const faded_k = decays + k_dim;
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
    if (t % kScanSteps == 0)
      gates_of(args, part.head, row, std::min(kScanSteps, segment.q_count - t), gates);
    unit_row(args.q.data + row * args.q.row_stride + k_head * k_dim, k_dim, args.normalize, scale,
             q);
    unit_row(args.k.data + row * args.k.row_stride + k_head * k_dim, k_dim, args.normalize, 1.0f,
             k);
    std::memcpy(v, args.v.data + row * args.v.row_stride + column, bytes);
    if (args.decay_per_key) key_decays(args, part.head, row, k, decays, faded_k);
    const DeltaStep step{.q = q,
                         .k = k,
                         .v = v,
                         .y = y,
                         .decays = decays,
                         .faded_k = faded_k,
                         .decay = gates.decay[t % kScanSteps],
                         .beta = gates.beta[t % kScanSteps]};
    args.decay_per_key ? delta_step<true>(step, k_dim, scratch)
                       : delta_step<false>(step, k_dim, scratch);
    std::memcpy(args.out + row * out_stride + column, y, bytes);
  }
  if (own)
    for (int64_t i = 0; i < k_dim; ++i)
      std::memcpy(own + i * args.v_dim, scratch + i * kWidth, bytes);
}

void delta_part(const DeltaScanArgs& args, const StatePart& part, float* scratch) {
  for (int64_t column = part.begin; column < part.end; column += kWidth)
    scan_strip(args, part, column, std::min(kWidth, part.end - column), scratch);
}

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
  PartialSums sums;
  for_vectors(count, [&](auto at) HWY_ATTR {
    const VF kept = hn::Mul(decay_of<kPerState>(step, at.load(a)), at.load(state));
    const VF moved = hn::MulAdd(input, at.load(step.b), kept);
    at.store(moved, state);
    sums.of(at.i) = hn::MulAdd(at.load(step.c), moved, sums.of(at.i));
  });
  return sums.total();
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
void scan_part(const SsmScanArgs& args, const StatePart& part, float* state) {
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

HWY_EXPORT(convolve_part);

namespace {

constexpr int64_t kPartChannels = 512, kPartRows = 64;

std::vector<ConvPart> conv_parts(const CausalConvArgs& args) {
  std::vector<ConvPart> parts;
  for (size_t s = 0; s < args.segments.size(); ++s)
    for (int64_t t = 0; t < args.segments[s].q_count; t += kPartRows)
      for (int64_t c = 0; c < args.channels; c += kPartChannels)
        parts.push_back({.segment = s,
                         .begin = t,
                         .end = std::min(args.segments[s].q_count, t + kPartRows),
                         .first = c,
                         .last = std::min(args.channels, c + kPartChannels)});
  return parts;
}

/// Copies the last rows of the segment to the state; reads stay ahead of writes.
void keep_state(const CausalConvArgs& args, size_t segment) {
  const int64_t before = args.kernel - 1, count = args.segments[segment].q_count;
  if (count == 0) return;
  float* state = args.state + static_cast<int64_t>(segment) * before * args.channels;
  for (int64_t i = 0; i < before; ++i)
    std::memcpy(state + i * args.channels,
                conv_row(args, {.segment = segment}, count - before + i, nullptr),
                static_cast<size_t>(args.channels) * sizeof(float));
}

}  // namespace

void CpuBackend::do_causal_conv(const CausalConvArgs& args) {
  const std::vector<ConvPart> parts = conv_parts(args);
  pool_.parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t index, int) {
    HWY_DYNAMIC_DISPATCH(convolve_part)(args, parts[static_cast<size_t>(index)]);
  });
  if (!args.state) return;
  pool_.parallel_for(static_cast<int64_t>(args.segments.size()),
                     [&](int64_t index, int) { keep_state(args, static_cast<size_t>(index)); });
}

HWY_EXPORT(delta_part);

void CpuBackend::do_delta_scan(const DeltaScanArgs& args) {
  const int64_t blocks = (args.v_dim + kDeltaColumns - 1) / kDeltaColumns;
  const int64_t tasks = static_cast<int64_t>(args.segments.size()) * args.v_heads * blocks;
  pool_.parallel_for(tasks, [&](int64_t index, int thread) {
    const int64_t head = index / blocks, begin = index % blocks * kDeltaColumns;
    const StatePart part{.segment = static_cast<size_t>(head / args.v_heads),
                         .head = head % args.v_heads,
                         .begin = begin,
                         .end = std::min(args.v_dim, begin + kDeltaColumns)};
    float* scratch =
        scratch_[static_cast<size_t>(thread)].get<float>((kDeltaColumns + 4) * args.k_dim);
    HWY_DYNAMIC_DISPATCH(delta_part)(args, part, scratch);
  });
}

HWY_EXPORT(scan_part);

/// Elements of the state in one task, few enough for the nearest cache, and its rows, few enough
/// that Mamba 1's short rows still give many tasks.
constexpr int64_t kPartStates = 8192, kPartSteps = 128;

void CpuBackend::do_ssm_scan(const SsmScanArgs& args) {
  const int64_t rows = args.heads * args.head_dim;
  const int64_t block = std::clamp<int64_t>(kPartStates / args.state_dim, 1, kPartSteps);
  const int64_t blocks = (rows + block - 1) / block;
  const int64_t segments = static_cast<int64_t>(args.segments.size());
  pool_.parallel_for(segments * blocks, [&](int64_t index, int thread) {
    const int64_t segment = index / blocks, begin = index % blocks * block;
    const StatePart part{.segment = static_cast<size_t>(segment),
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
