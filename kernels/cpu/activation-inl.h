// Activation functions and gated rows of them. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_ACTIVATION_INL_H_
#undef KVCAL_KERNELS_CPU_ACTIVATION_INL_H_
#else
#define KVCAL_KERNELS_CPU_ACTIVATION_INL_H_
#endif

#include "kernels/cpu/amax-inl.h"
#include "kernels/cpu/logistic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// 0.5 x (1 + tanh(u)) = x · logistic(2u), which keeps its digits where tanh is near -1.
HWY_INLINE VF gelu_tanh(VF x) {
  const VF cubic = hn::MulAdd(hn::Mul(set(0.044715f), hn::Mul(x, x)), x, x);
  return times_logistic(x, hn::Mul(set(1.59576912f), cubic));
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
  if (kActivation == Activation::kSilu) return times_logistic(x, x);
  if (kActivation == Activation::kGelu) return gelu(x);
  if (kActivation == Activation::kGeluTanh) return gelu_tanh(x);
  if (kActivation == Activation::kQuickGelu) return times_logistic(x, hn::Mul(set(1.702f), x));
  const VF positive = hn::IfThenZeroElse(hn::Lt(x, set(0.0f)), x);  // NaN stays
  return kActivation == Activation::kRelu ? positive : hn::Mul(positive, positive);
}

/// Inputs of one row; up is read only where the activation is gated.
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

/// Writes one row and folds it into seen.
template <Activation kActivation, Gate kGate, class Out>
HWY_INLINE void activate_row(const ActivationRow& row, Out* out, AmaxFold<Out>& seen) {
  const VF limit = set(row.limit);
  store_row(
      row.width, out,
      [&](int64_t i) HWY_ATTR {
        const VF value = gated<kActivation, kGate>(load_as_float(row.gate + i),
                                                   load_as_float(row.up + i), limit);
        seen.fold(value);
        return value;
      },
      [&](int64_t i, int64_t left) HWY_ATTR {
        const VF value = gated<kActivation, kGate>(load_part(row.gate + i, left),
                                                   load_part(row.up + i, left), limit);
        seen.fold_part(value, left);
        return value;
      });
  seen.end_row(out, row.width);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
