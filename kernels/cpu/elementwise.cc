#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/cpu/aligned_view.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

template <class In>
void scaled_row(const In* row, int64_t width, float multiplier, float* out) {
  const VF times = set(multiplier);
  int64_t i = 0;
  for (; i + lanes() <= width; i += lanes())
    store_from_float(hn::Mul(times, load_as_float(row + i)), out + i);
  if (i < width) store_part(hn::Mul(times, load_part(row + i, width - i)), out + i, width - i);
}

template <class In>
void embed_as(const EmbedArgs& args, int64_t begin, int64_t end) {
  const int64_t hidden = args.table.shape[1];
  const int64_t row_bytes = hidden * static_cast<int64_t>(sizeof(In));
  for (int64_t row = begin; row < end; ++row) {
    const auto id = static_cast<int64_t>(args.ids[static_cast<size_t>(row)]);
    const AlignedView<In> stored(args.table.bytes.data() + id * row_bytes, hidden);
    scaled_row(stored.data(), hidden, args.multiplier, args.out + row * hidden);
  }
}

void embed_rows(const EmbedArgs& args, int64_t begin, int64_t end) {
  if (args.table.dtype == DType::kF32) return embed_as<float>(args, begin, end);
  if (args.table.dtype == DType::kF16) return embed_as<F16>(args, begin, end);
  embed_as<BF16>(args, begin, end);
}

HWY_INLINE float sum_of_squares(const float* x, int64_t width) {
  VF sum0 = set(0.0f), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 4 * lanes() <= width; i += 4 * lanes()) {
    const VF a = load_as_float(x + i), b = load_as_float(x + i + lanes());
    const VF c = load_as_float(x + i + 2 * lanes()), d = load_as_float(x + i + 3 * lanes());
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
    sum2 = hn::MulAdd(c, c, sum2);
    sum3 = hn::MulAdd(d, d, sum3);
  }
  for (; i < width; i += lanes()) {
    const VF a = i + lanes() <= width ? load_as_float(x + i) : load_part(x + i, width - i);
    sum0 = hn::MulAdd(a, a, sum0);
  }
  return hn::GetLane(hn::SumOfLanes(DF(), hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

template <class Out>
void rms_norm_as(const RmsNormArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x + row * args.width;
    auto* out = static_cast<Out*>(args.out) + row * args.width;
    const float mean = sum_of_squares(x, args.width) / static_cast<float>(args.width);
    const VF inverse = set(1.0f / std::sqrt(mean + args.epsilon));
    int64_t i = 0;
    for (; i + lanes() <= args.width; i += lanes())
      store_from_float(
          hn::Mul(hn::Mul(load_as_float(x + i), inverse), load_as_float(args.weight + i)), out + i);
    const int64_t left = args.width - i;
    if (left > 0)
      store_part(
          hn::Mul(hn::Mul(load_part(x + i, left), inverse), load_part(args.weight + i, left)),
          out + i, left);
  }
}

void rms_norm_rows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  if (args.out_type == ComputeType::kFloat32) return rms_norm_as<float>(args, begin, end);
  if (args.out_type == ComputeType::kFloat16) return rms_norm_as<F16>(args, begin, end);
  rms_norm_as<BF16>(args, begin, end);
}

/// Turns (a, b) by the angles of cosine and sine.
HWY_INLINE void turn(VF& a, VF& b, VF cosine, VF sine) {
  const VF x = a, y = b;
  a = hn::MulSub(x, cosine, hn::Mul(y, sine));
  b = hn::MulAdd(y, cosine, hn::Mul(x, sine));
}

/// Pairs (i, i + pairs) of one head.
void turn_halves(float* x, const float* cosines, const float* sines, int64_t pairs) {
  int64_t i = 0;
  for (; i + lanes() <= pairs; i += lanes()) {
    VF a = load_as_float(x + i), b = load_as_float(x + pairs + i);
    turn(a, b, load_as_float(cosines + i), load_as_float(sines + i));
    store_from_float(a, x + i);
    store_from_float(b, x + pairs + i);
  }
  const int64_t left = pairs - i;
  if (left == 0) return;
  VF a = load_part(x + i, left), b = load_part(x + pairs + i, left);
  turn(a, b, load_part(cosines + i, left), load_part(sines + i, left));
  store_part(a, x + i, left);
  store_part(b, x + pairs + i, left);
}

/// Pairs (2i, 2i + 1) of one head.
void turn_neighbours(float* x, const float* cosines, const float* sines, int64_t pairs) {
  for (int64_t i = 0; i < pairs; i += lanes()) {
    const int64_t here = std::min(lanes(), pairs - i);
    float both[2 * kMaxLanes] = {};
    std::memcpy(both, x + 2 * i, static_cast<size_t>(2 * here) * sizeof(float));
    VF a, b;
    hn::LoadInterleaved2(DF(), both, a, b);
    turn(a, b, load_part(cosines + i, here), load_part(sines + i, here));
    hn::StoreInterleaved2(a, b, DF(), both);
    std::memcpy(x + 2 * i, both, static_cast<size_t>(2 * here) * sizeof(float));
  }
}

void rope_rows(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t pairs = args.rotary_dim / 2;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < args.x.heads; ++h) {
      float* x = args.x.data + t * args.x.row_stride + h * args.x.head_dim;
      const float* cosines = args.cos + args.positions[t] * pairs;
      const float* sines = args.sin + args.positions[t] * pairs;
      args.interleaved ? turn_neighbours(x, cosines, sines, pairs)
                       : turn_halves(x, cosines, sines, pairs);
    }
}

/// x · logistic(x).
HWY_INLINE VF silu(VF x) {
  return hn::Div(x, hn::Add(set(1.0f), exp(hn::Neg(x))));
}

/// 0.5 x (1 + tanh(u)) = x · logistic(2u), which keeps its digits where tanh is near -1.
HWY_INLINE VF gelu_tanh(VF x) {
  const VF cubic = hn::MulAdd(hn::Mul(set(0.044715f), hn::Mul(x, x)), x, x);
  const VF minus_2u = hn::Mul(set(-1.59576912f), cubic);
  return hn::Div(x, hn::Add(set(1.0f), exp(minus_2u)));
}

/// x · Φ(x), one lane at a time: no model in the table of families uses it in a gated layer.
HWY_INLINE VF gelu(VF x) {
  float lane[kMaxLanes];
  hn::StoreU(x, DF(), lane);
  for (int64_t i = 0; i < lanes(); ++i)
    lane[i] = 0.5f * lane[i] * std::erfc(-lane[i] / std::numbers::sqrt2_v<float>);
  return hn::LoadU(DF(), lane);
}

HWY_INLINE VF activated(Activation activation, VF x) {
  if (activation == Activation::kSilu) return silu(x);
  return activation == Activation::kGeluTanh ? gelu_tanh(x) : gelu(x);
}

template <class Out>
void gated_activation_as(const GatedActivationArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.width;
  for (int64_t row = begin; row < end; ++row) {
    const float* gate = args.gate_up + row * 2 * width;
    const float* up = gate + width;
    auto* out = static_cast<Out*>(args.out) + row * width;
    int64_t i = 0;
    for (; i + lanes() <= width; i += lanes())
      store_from_float(
          hn::Mul(activated(args.activation, load_as_float(gate + i)), load_as_float(up + i)),
          out + i);
    const int64_t left = width - i;
    if (left > 0)
      store_part(
          hn::Mul(activated(args.activation, load_part(gate + i, left)), load_part(up + i, left)),
          out + i, left);
  }
}

void gated_activation_rows(const GatedActivationArgs& args, int64_t begin, int64_t end) {
  if (args.out_type == ComputeType::kFloat32) return gated_activation_as<float>(args, begin, end);
  if (args.out_type == ComputeType::kFloat16) return gated_activation_as<F16>(args, begin, end);
  gated_activation_as<BF16>(args, begin, end);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(embed_rows);
HWY_EXPORT(rms_norm_rows);
HWY_EXPORT(rope_rows);
HWY_EXPORT(gated_activation_rows);

void CpuBackend::embed(const EmbedArgs& args) {
  check_embed(args);
  for_row_blocks(static_cast<int64_t>(args.ids.size()), args.table.shape[1],
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(embed_rows)(args, begin, end);
                 });
}

void CpuBackend::rms_norm(const RmsNormArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rms_norm_rows)(args, begin, end);
  });
}

void CpuBackend::rope(const RopeArgs& args) {
  check_rope(args);
  for_row_blocks(args.x.tokens, args.x.heads * args.x.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rope_rows)(args, begin, end);
  });
}

void CpuBackend::gated_activation(const GatedActivationArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gated_activation_rows)(args, begin, end);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
