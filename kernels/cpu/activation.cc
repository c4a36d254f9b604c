#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/logistic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// 0.5 x (1 + tanh(u)) = x · logistic(2u), which keeps its digits where tanh is near -1.
HWY_INLINE VF gelu_tanh(VF x) {
  const VF cubic = hn::MulAdd(hn::Mul(set(0.044715f), hn::Mul(x, x)), x, x);
  return times_logistic(x, hn::Mul(set(-1.59576912f), cubic));
}

/// x · Φ(x), where Φ(-t√2) = erfc(t) / 2 and erfc(t) = e^(-t²) · s · P(s), s = 1 / (1 + 0.35 t). P
/// meets erfc at the Chebyshev nodes of 0 <= t <= 9.5 and is within 2^-24 of it; beyond, e^(-t²)
/// is 0.
HWY_INLINE VF gelu(VF x) {
  const VF t = hn::Mul(hn::Abs(x), set(0.70710678f));
  const VF s = hn::Div(set(1.0f), hn::MulAdd(set(0.35f), t, set(1.0f)));
  VF sum = set(0.035709973f);
  sum = hn::MulAdd(sum, s, set(-0.14417873f));
  sum = hn::MulAdd(sum, s, set(0.1464018f));
  sum = hn::MulAdd(sum, s, set(0.019650271f));
  sum = hn::MulAdd(sum, s, set(0.047028143f));
  sum = hn::MulAdd(sum, s, set(0.16790253f));
  sum = hn::MulAdd(sum, s, set(0.1434621f));
  sum = hn::MulAdd(sum, s, set(0.18960151f));
  sum = hn::MulAdd(sum, s, set(0.19692738f));
  sum = hn::MulAdd(sum, s, set(0.19749504f));
  const VF power = exp(hn::Mul(set(-0.5f), hn::Mul(x, x)));
  const VF tail = hn::Mul(hn::Mul(set(0.5f), power), hn::Mul(s, sum));
  // At -infinity, -infinity · 0 is NaN, as in torch.
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, set(0.0f)), tail, hn::Sub(set(1.0f), tail)));
}

template <Activation kActivation>
HWY_INLINE VF activated(VF x) {
  if (kActivation == Activation::kSilu) return times_logistic(x, hn::Neg(x));
  if (kActivation == Activation::kGelu) return gelu(x);
  if (kActivation == Activation::kGeluTanh) return gelu_tanh(x);
  if (kActivation == Activation::kQuickGelu) return times_logistic(x, hn::Mul(set(-1.702f), x));
  const VF positive = hn::IfThenZeroElse(hn::Lt(x, set(0.0f)), x);  // NaN stays
  return kActivation == Activation::kRelu ? positive : hn::Mul(positive, positive);
}

/// One row's inputs. up is read where there is one.
struct ActivationRow {
  const float* gate = nullptr;
  const float* up = nullptr;
  int64_t width = 0;
  float limit = 0.0f;
};

enum class Gate : uint8_t { kNone, kPlain, kLimited };

template <Activation kActivation, Gate kGate>
HWY_INLINE VF gated(VF gate, VF up, VF limit) {
  if (kGate == Gate::kNone) return activated<kActivation>(gate);
  if (kGate == Gate::kPlain) return hn::Mul(activated<kActivation>(gate), up);
  const VF lowest = hn::Neg(limit);
  const VF cut_gate = hn::IfThenElse(hn::Gt(gate, limit), limit, gate);  // NaN stays
  VF cut_up = hn::IfThenElse(hn::Gt(up, limit), limit, up);
  cut_up = hn::IfThenElse(hn::Lt(up, lowest), lowest, cut_up);
  return hn::Mul(activated<kActivation>(cut_gate), hn::Add(cut_up, set(1.0f)));
}

template <Activation kActivation, Gate kGate, class Out>
HWY_INLINE void activate_row(const ActivationRow& row, Out* out) {
  const VF limit = set(row.limit);
  int64_t i = 0;
  for (; i + lanes() <= row.width; i += lanes())
    store_from_float(
        gated<kActivation, kGate>(load_as_float(row.gate + i), load_as_float(row.up + i), limit),
        out + i);
  if (const int64_t left = row.width - i; left > 0)
    store_part(gated<kActivation, kGate>(load_part(row.gate + i, left), load_part(row.up + i, left),
                                         limit),
               out + i, left);
}

template <Activation kActivation, Gate kGate, class Out>
HWY_NOINLINE void activate_as(const ActivationArgs& args, int64_t begin, int64_t end) {
  const int64_t stride = args.gated ? 2 * args.width : args.width;
  for (int64_t r = begin; r < end; ++r) {
    const float* gate = args.x + r * stride;
    activate_row<kActivation, kGate>({.gate = gate,
                                      .up = args.gated ? gate + args.width : gate,
                                      .width = args.width,
                                      .limit = args.limit},
                                     static_cast<Out*>(args.out) + r * args.width);
  }
}

template <Activation kActivation, Gate kGate>
void choose_type(const ActivationArgs& args, int64_t begin, int64_t end) {
  if (args.out_type == ComputeType::kFloat32)
    return activate_as<kActivation, kGate, float>(args, begin, end);
  if (args.out_type == ComputeType::kFloat16)
    return activate_as<kActivation, kGate, F16>(args, begin, end);
  activate_as<kActivation, kGate, BF16>(args, begin, end);
}

template <Activation kActivation>
void choose_gate(const ActivationArgs& args, int64_t begin, int64_t end) {
  if (!args.gated) return choose_type<kActivation, Gate::kNone>(args, begin, end);
  if (args.limit > 0.0f) return choose_type<kActivation, Gate::kLimited>(args, begin, end);
  choose_type<kActivation, Gate::kPlain>(args, begin, end);
}

void activate_rows(const ActivationArgs& args, int64_t begin, int64_t end) {
  switch (args.activation) {
    case Activation::kSilu:
      return choose_gate<Activation::kSilu>(args, begin, end);
    case Activation::kGelu:
      return choose_gate<Activation::kGelu>(args, begin, end);
    case Activation::kGeluTanh:
      return choose_gate<Activation::kGeluTanh>(args, begin, end);
    case Activation::kQuickGelu:
      return choose_gate<Activation::kQuickGelu>(args, begin, end);
    case Activation::kRelu:
      return choose_gate<Activation::kRelu>(args, begin, end);
    case Activation::kSquaredRelu:
      return choose_gate<Activation::kSquaredRelu>(args, begin, end);
  }
}

template <GateFunction kFunction, class Out>
HWY_NOINLINE void multiply_gate_as(const MultiplyGateArgs& args, int64_t begin, int64_t end) {
  const int64_t head_stride = args.gate_head_stride > 0 ? args.gate_head_stride : args.width;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < args.heads; ++h)
      gate_row<kFunction>(args.x.data + t * args.x.row_stride + h * args.width,
                          args.gate.data + t * args.gate.row_stride + h * head_stride, args.width,
                          static_cast<Out*>(args.out) + (t * args.heads + h) * args.width);
}

template <GateFunction kFunction>
void multiply_gate_by(const MultiplyGateArgs& args, int64_t begin, int64_t end) {
  if (args.out_type == ComputeType::kFloat32)
    return multiply_gate_as<kFunction, float>(args, begin, end);
  if (args.out_type == ComputeType::kFloat16)
    return multiply_gate_as<kFunction, F16>(args, begin, end);
  multiply_gate_as<kFunction, BF16>(args, begin, end);
}

void multiply_gate_rows(const MultiplyGateArgs& args, int64_t begin, int64_t end) {
  if (args.function == GateFunction::kSilu)
    return multiply_gate_by<GateFunction::kSilu>(args, begin, end);
  multiply_gate_by<GateFunction::kSigmoid>(args, begin, end);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(activate_rows);
HWY_EXPORT(multiply_gate_rows);

void CpuBackend::activate(const ActivationArgs& args) {
  check_activate(args);
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(activate_rows)(args, begin, end);
  });
  observe_written(args.seen, args.out_type, args.out, args.rows * args.width);
}

void CpuBackend::multiply_gate(const MultiplyGateArgs& args) {
  check_multiply_gate(args);
  for_row_blocks(args.rows, args.heads * args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(multiply_gate_rows)(args, begin, end);
  });
  observe_written(args.seen, args.out_type, args.out, args.rows * args.heads * args.width);
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
