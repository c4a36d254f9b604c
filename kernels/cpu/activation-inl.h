// Gate functions based on the logistic function. Activation functions and gated rows of them.
// The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_ACTIVATION_INL_H_
#undef KVCAL_KERNELS_CPU_ACTIVATION_INL_H_
#else
#define KVCAL_KERNELS_CPU_ACTIVATION_INL_H_
#endif

#include <limits>

#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// 1 + e^-u, within 2 ulp; infinity where u < -88.7. NaN may be lost.
HWY_INLINE VF one_plus_exp_of_negative(VF u) {
  // Beyond 30 the sum is 1, and the exponent below must stay within float32's range.
  const VF clamped = hn::Min(u, set(30.0f));
  const VF shifted = hn::MulAdd(clamped, set(-1.44269504f), set(kWholeShift));
  const VF whole = hn::Sub(shifted, set(kWholeShift));
  // ln 2 in two parts, as in exp. e^-r is the polynomial of least relative error, 1e-7.
  VF r = hn::MulAdd(whole, set(0.693359375f), clamped);
  r = hn::MulAdd(whole, set(-2.12194440e-4f), r);
  const VF sum =
      polynomial(r, -0.0082900587f, 0.041899313f, -0.16667648f, 0.49999139f, -0.9999997f, 1.0f);
  // The integer part is in shifted's low bits; the other bits are shifted out.
  const VF power = as_float(hn::Add(as_int(sum), hn::ShiftLeft<23>(as_int(shifted))));
  return hn::IfThenElse(hn::Lt(u, set(-88.72283f)), set(std::numeric_limits<float>::infinity()),
                        hn::Add(power, set(1.0f)));
}

/// x · logistic(u), where x is NaN if u is.
HWY_INLINE VF times_logistic(VF x, VF u) {
  return hn::Div(x, one_plus_exp_of_negative(u));
}

/// log(1 + e^x), within 4 ulp; NaN stays NaN. With u = e^-|x|, log(1 + u) = 2 atanh(u / (2 + u));
/// its series in s² <= 1/9 ends where the remainder is below 2^-28.
HWY_INLINE VF softplus(VF x) {
  const VF u = exp(hn::Neg(hn::Abs(x)));
  const VF s = hn::Div(u, hn::Add(set(2.0f), u));
  const VF square = hn::Mul(s, s);
  const VF sum = polynomial(square, 2.0f / 15, 2.0f / 13, 2.0f / 11, 2.0f / 9, 2.0f / 7, 2.0f / 5,
                            2.0f / 3, 2.0f);
  const VF positive = hn::IfThenZeroElse(hn::Lt(x, set(0.0f)), x);
  return hn::MulAdd(sum, s, positive);
}

/// Factor that a gate gives; NaN stays NaN.
template <GateFunction kFunction>
HWY_INLINE VF gate_of(VF gate) {
  if (kFunction == GateFunction::kIdentity) return gate;
  if (kFunction == GateFunction::kSilu) return times_logistic(gate, gate);
  if (kFunction == GateFunction::kSoftplus) return softplus(gate);
  const VF one = set(1.0f);
  return hn::Div(one, hn::Add(one, exp(hn::Neg(gate))));
}

/// x times the function of its gate. Folds the output into seen; the caller ends the row. out may
/// be x.
template <GateFunction kFunction, class Out>
HWY_INLINE void gate_row(const float* x, const float* gate, int64_t width, Out* out,
                         AmaxFold<Out>& seen) {
  store_row(width, out, [&](auto at) HWY_ATTR {
    return seen.fold(at, hn::Mul(at.load(x), gate_of<kFunction>(at.load(gate))));
  });
}

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
  const VF sum = polynomial(s, 0.035709973f, -0.14417873f, 0.1464018f, 0.019650271f, 0.047028143f,
                            0.16790253f, 0.1434621f, 0.18960151f, 0.19692738f, 0.19749504f);
  const VF power = exp(hn::Mul(set(-0.5f), hn::Mul(x, x)));
  const VF tail = hn::Mul(hn::Mul(set(0.5f), power), hn::Mul(s, sum));
  // At -infinity, -infinity · 0 is NaN, as in torch.
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, set(0.0f)), tail, hn::Sub(set(1.0f), tail)));
}

/// e^x - 1 - x. Near 0, where the difference would lose digits, Taylor's series, whose
/// remainder is below 2^-24 of it.
HWY_INLINE VF exp_beyond_line(VF x) {
  const VF sum = polynomial(x, 1.0f / 39916800.0f, 1.0f / 3628800, 1.0f / 362880, 1.0f / 40320,
                            1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f);
  const VF near = hn::Mul(hn::Mul(x, x), sum);
  const VF far = hn::Sub(hn::Sub(exp(x), set(1.0f)), x);
  return hn::IfThenElse(hn::Gt(hn::Abs(x), set(1.0f)), far, near);
}

/// See ActivationFunction. min(x, eps) - x is exact: 0, or of numbers near each other.
HWY_INLINE VF xielu(VF x, const ActivationFunction& function) {
  const VF eps = set(function.eps), linear = hn::Mul(set(function.beta), x);
  const VF positive = hn::MulAdd(hn::Mul(set(function.alpha_p), x), x, linear);
  const VF cut = hn::IfThenElse(hn::Gt(x, eps), eps, x);  // NaN stays
  const VF beyond = hn::Add(exp_beyond_line(cut), hn::Sub(cut, x));
  const VF negative = hn::MulAdd(set(function.alpha_n), beyond, linear);
  return hn::IfThenElse(hn::Gt(x, set(0.0f)), positive, negative);
}

/// x · P(x²) near 0, where the difference below would lose digits: Taylor's series, whose remainder
/// is below 2^-24 of it. NaN stays NaN.
HWY_INLINE VF tanh_of(VF x) {
  const VF square = hn::Mul(x, x);
  const VF sum =
      polynomial(square, -1382.0f / 155925, 62.0f / 2835, -17.0f / 315, 2.0f / 15, -1.0f / 3, 1.0f);
  const VF twice = hn::Add(x, x);
  const VF far =
      hn::Sub(times_logistic(hn::IfThenElse(hn::IsNaN(x), x, set(2.0f)), twice), set(1.0f));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), set(0.25f)), hn::Mul(x, sum), far);
}

/// x within ±cap, by tanh.
HWY_INLINE VF softcapped(VF x, VF cap) {
  return hn::Mul(cap, tanh_of(hn::Div(x, cap)));
}

template <Activation kActivation>
HWY_INLINE VF activated(VF x, const ActivationFunction& function) {
  if (kActivation == Activation::kSitu) return times_logistic(softcapped(x, set(function.beta)), x);
  if (kActivation == Activation::kXielu) return xielu(x, function);
  if (kActivation == Activation::kTanh) return tanh_of(x);
  if (kActivation == Activation::kSilu) return times_logistic(x, x);
  if (kActivation == Activation::kGelu) return gelu(x);
  if (kActivation == Activation::kGeluTanh) return gelu_tanh(x);
  if (kActivation == Activation::kQuickGelu) return times_logistic(x, hn::Mul(set(1.702f), x));
  const VF positive = hn::IfThenZeroElse(hn::Lt(x, set(0.0f)), x);  // NaN stays
  return kActivation == Activation::kRelu ? positive : hn::Mul(positive, positive);
}

enum class Gate : uint8_t { kNone, kPlain, kAdjusted };

/// Without a limit, infinity cuts nothing.
template <Activation kActivation, Gate kGate>
HWY_INLINE VF gated(VF gate, VF up, const ActivationFunction& function) {
  if (kGate == Gate::kNone) return activated<kActivation>(gate, function);
  if (kGate == Gate::kPlain) return hn::Mul(activated<kActivation>(gate, function), up);
  const bool has_limit = function.limit > 0.0f;
  const VF limit = set(has_limit ? function.limit : std::numeric_limits<float>::infinity());
  const VF lowest = hn::Neg(limit);
  const auto at_most = [&](VF x) HWY_ATTR {
    return hn::IfThenElse(hn::Gt(x, limit), limit, x);  // NaN stays
  };
  const VF multiplied = hn::Mul(gate, set(function.gate_multiplier));
  if (kActivation == Activation::kSitu && function.up_softcap > 0.0f)
    up = softcapped(up, set(function.up_softcap));
  VF cut_up = at_most(up);
  cut_up = hn::IfThenElse(hn::Lt(up, lowest), lowest, cut_up);
  if (function.limits_activated)
    return hn::Mul(at_most(activated<kActivation>(multiplied, function)), cut_up);
  return hn::Mul(activated<kActivation>(at_most(multiplied), function),
                 hn::Add(cut_up, set(has_limit && function.adds_one ? 1.0f : 0.0f)));
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
