// Softmax weights, truncated to bfloat16. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_SOFTMAX_WEIGHT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_SOFTMAX_WEIGHT_INL_H_
#undef KVCAL_KERNELS_CPU_SOFTMAX_WEIGHT_INL_H_
#else
#define KVCAL_KERNELS_CPU_SOFTMAX_WEIGHT_INL_H_
#endif

#include "kernels/cpu/softmax_weight.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Truncates a float32 to the digits of a bfloat16.
HWY_INLINE VF cut(VF v) {
  return hn::BitCast(DF(), hn::And(hn::BitCast(DU(), v), hn::Set(DU(), 0xffff0000u)));
}

/// Writes the upper halves of the lanes of two vectors, one vector after the other.
HWY_INLINE void store_cut(VF first, VF second, BF16* out) {
#if HWY_TARGET == HWY_SCALAR
  store_low_halves(hn::BitCast(DI(), hn::ShiftRight<16>(hn::BitCast(DU(), first))), &out[0].bits);
  store_low_halves(hn::BitCast(DI(), hn::ShiftRight<16>(hn::BitCast(DU(), second))), &out[1].bits);
#else
  const hn::Repartition<uint16_t, DF> halves;
  hn::StoreU(hn::ConcatOdd(halves, hn::BitCast(halves, second), hn::BitCast(halves, first)), halves,
             &out->bits);
#endif
}

/// 2^x for x < 127, within 1e-4, less than the truncation's 2e-3; 0 or subnormal below -126, 0 at
/// -infinity; NaN stays NaN. The polynomials interpolate 2^f at the Chebyshev nodes.
HWY_INLINE VF weight_of(VF x) {
#if HWY_TARGET <= HWY_AVX3
  const VF f{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF)};  // in [0, 1)
  VF sum = set(0.07896726f);
  sum = hn::MulAdd(sum, f, set(0.22469316f));
  sum = hn::MulAdd(sum, f, set(0.69632477f));
  sum = hn::MulAdd(sum, f, set(0.99990029f));
  return VF{_mm512_scalef_ps(sum.raw, x.raw)};
#else
  const VF shift = set(kWholeAndBias);
#if HWY_TARGET == HWY_SCALAR
  const VF clamped = hn::IfThenElse(hn::Lt(x, set(-127.0f)), set(-127.0f), x);  // its Max drops NaN
#else
  const VF clamped = hn::Max(set(-127.0f), x);
#endif
  const VF shifted = hn::Add(clamped, shift);
  const VF f = hn::Sub(clamped, hn::Sub(shifted, shift));
  VF sum = set(kPowerOfTwo[0]);
  for (const int i : {1, 2, 3}) sum = hn::MulAdd(sum, f, set(kPowerOfTwo[i]));
  return hn::Mul(sum, as_float(hn::ShiftLeft<23>(as_int(shifted))));
#endif
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
