// Gate functions based on the logistic function. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_LOGISTIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_LOGISTIC_INL_H_
#undef KVCAL_KERNELS_CPU_LOGISTIC_INL_H_
#else
#define KVCAL_KERNELS_CPU_LOGISTIC_INL_H_
#endif

#include <limits>

#include "kernels/cpu/amax-inl.h"

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
  VF sum = set(-0.0082900587f);
  sum = hn::MulAdd(sum, r, set(0.041899313f));
  sum = hn::MulAdd(sum, r, set(-0.16667648f));
  sum = hn::MulAdd(sum, r, set(0.49999139f));
  sum = hn::MulAdd(sum, r, set(-0.9999997f));
  sum = hn::MulAdd(sum, r, set(1.0f));
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
  VF sum = set(2.0f / 15);
  sum = hn::MulAdd(sum, square, set(2.0f / 13));
  sum = hn::MulAdd(sum, square, set(2.0f / 11));
  sum = hn::MulAdd(sum, square, set(2.0f / 9));
  sum = hn::MulAdd(sum, square, set(2.0f / 7));
  sum = hn::MulAdd(sum, square, set(2.0f / 5));
  sum = hn::MulAdd(sum, square, set(2.0f / 3));
  sum = hn::MulAdd(sum, square, set(2.0f));
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

/// x times one factor. As gate_row.
template <class Out>
HWY_INLINE void factor_row(const float* x, VF factor, int64_t width, Out* out,
                           AmaxFold<Out>& seen) {
  store_row(
      width, out,
      [&](int64_t i) HWY_ATTR {
        const VF value = hn::Mul(load_as_float(x + i), factor);
        seen.fold(value);
        return value;
      },
      [&](int64_t i, int64_t left) HWY_ATTR {
        const VF value = hn::Mul(load_part(x + i, left), factor);
        seen.fold_part(value, left);
        return value;
      });
}

/// x times the function of its gate. Folds the output into seen; the caller ends the row. out may
/// be x.
template <GateFunction kFunction, class Out>
HWY_INLINE void gate_row(const float* x, const float* gate, int64_t width, Out* out,
                         AmaxFold<Out>& seen) {
  store_row(
      width, out,
      [&](int64_t i) HWY_ATTR {
        const VF value = hn::Mul(load_as_float(x + i), gate_of<kFunction>(load_as_float(gate + i)));
        seen.fold(value);
        return value;
      },
      [&](int64_t i, int64_t left) HWY_ATTR {
        const VF value =
            hn::Mul(load_part(x + i, left), gate_of<kFunction>(load_part(gate + i, left)));
        seen.fold_part(value, left);
        return value;
      });
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
