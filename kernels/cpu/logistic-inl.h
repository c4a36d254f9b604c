// Gates: functions made of the logistic function. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_LOGISTIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_LOGISTIC_INL_H_
#undef KVCAL_KERNELS_CPU_LOGISTIC_INL_H_
#else
#define KVCAL_KERNELS_CPU_LOGISTIC_INL_H_
#endif

#include "kernels/cpu/amax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// x · logistic(u), given -u.
HWY_INLINE VF times_logistic(VF x, VF minus_u) {
  return hn::Div(x, hn::Add(set(1.0f), exp(minus_u)));
}

/// What a gate multiplies by.
template <GateFunction kFunction>
HWY_INLINE VF gate_of(VF gate) {
  return times_logistic(kFunction == GateFunction::kSilu ? gate : set(1.0f), hn::Neg(gate));
}

/// x times the function of its gate; what is written is folded into seen, whose row the caller
/// ends. out may be x.
template <GateFunction kFunction, class Out>
HWY_INLINE void gate_row(const float* x, const float* gate, int64_t width, Out* out,
                         AmaxFold<Out>& seen) {
  int64_t i = 0;
  for (; i + lanes() <= width; i += lanes()) {
    const VF value = hn::Mul(load_as_float(x + i), gate_of<kFunction>(load_as_float(gate + i)));
    seen.fold(value);
    store_from_float(value, out + i);
  }
  if (const int64_t left = width - i; left > 0) {
    const VF value = hn::Mul(load_part(x + i, left), gate_of<kFunction>(load_part(gate + i, left)));
    seen.fold_part(value, left);
    store_part(value, out + i, left);
  }
}

/// log(1 + e^x), within 4 ulp; NaN stays NaN. With u = e^-|x|, log(1 + u) = 2 atanh(u / (2 + u)),
/// whose series in s² <= 1/9 is cut where its rest is below 2^-28.
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

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
