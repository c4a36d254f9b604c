// Vector loads, stores and functions, compiled once per instruction set. Included by sources that
// use foreach_target.h; the guard is Highway's, which resets itself between the sets.
#if defined(KVCAL_KERNELS_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_VECTOR_INL_H_
#undef KVCAL_KERNELS_CPU_VECTOR_INL_H_
#else
#define KVCAL_KERNELS_CPU_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "backend/backend.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DU16 = hn::Rebind<uint16_t, DF>;
using DU8 = hn::Rebind<uint8_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;

constexpr size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);
HWY_INLINE int64_t lanes() {
  return static_cast<int64_t>(hn::Lanes(DF()));
}

HWY_INLINE VI as_int(VF v) {
  return hn::BitCast(DI(), v);
}
HWY_INLINE VF as_float(VI v) {
  return hn::BitCast(DF(), v);
}
HWY_INLINE VF set(float value) {
  return hn::Set(DF(), value);
}
HWY_INLINE VI set_int(int32_t value) {
  return hn::Set(DI(), value);
}

/// Stores the low halves of 32-bit lanes as 16-bit lanes.
HWY_INLINE void store_low_halves(VI v, uint16_t* out) {
  hn::StoreU(hn::TruncateTo(DU16(), hn::BitCast(DU(), v)), DU16(), out);
}

/// float16 bits → float32, exactly. Highway uses the processor's conversion where it has one; its
/// own code does not handle infinity and NaN.
HWY_INLINE VF float_of_half(hn::Vec<DU16> bits) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET <= HWY_AVX3
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::BitCast(dh, bits));
#else
  const VI wide = hn::BitCast(DI(), hn::PromoteTo(DU(), bits));
  const VI magnitude = hn::And(wide, set_int(0x7fff));
  const VI sign = hn::ShiftLeft<16>(hn::And(wide, set_int(0x8000)));
  const VI shifted = hn::ShiftLeft<13>(magnitude);
  VI value = hn::Add(shifted, set_int((127 - 15) << 23));
  const VF tiny = hn::Mul(hn::ConvertTo(DF(), magnitude), set(0x1p-24f));
  value = hn::IfThenElse(hn::Lt(magnitude, set_int(0x400)), as_int(tiny), value);
  value = hn::IfThenElse(hn::Lt(magnitude, set_int(0x7c00)), value,
                         hn::Or(shifted, set_int(0x7f800000)));
  const VI quiet = hn::Or(value, set_int(0x00400000));
  return as_float(hn::Or(hn::IfThenElse(hn::Gt(magnitude, set_int(0x7c00)), quiet, value), sign));
#endif
}

HWY_INLINE VF load_as_float(const float* x) {
  return hn::LoadU(DF(), x);
}
HWY_INLINE VF load_as_float(const F16* x) {
  return float_of_half(hn::LoadU(DU16(), &x->bits));
}
HWY_INLINE VF load_as_float(const BF16* x) {
  const VU wide = hn::PromoteTo(DU(), hn::LoadU(DU16(), &x->bits));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(wide));
}

HWY_INLINE void store_from_float(VF v, float* out) {
  hn::StoreU(v, DF(), out);
}

/// As to_bf16 in quant/half.h, bit for bit.
HWY_INLINE void store_from_float(VF v, BF16* out) {
  const VI bits = as_int(v);
  const VI high = hn::ShiftRight<16>(bits);
  const VI odd = hn::And(high, set_int(1));
  const VI rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, set_int(0x7fff))));
  const VI quiet = hn::Or(hn::And(high, set_int(0x8000)), set_int(0x7fc0));
  const auto is_nan = hn::Gt(hn::And(bits, set_int(0x7fffffff)), set_int(0x7f800000));
  store_low_halves(hn::IfThenElse(is_nan, quiet, rounded), &out->bits);
}

/// As to_f16 in quant/half.h, bit for bit.
HWY_INLINE void store_from_float(VF v, F16* out) {
  const VI bits = as_int(v);
  const VI magnitude = hn::And(bits, set_int(0x7fffffff));
  const VI sign = hn::And(hn::ShiftRight<16>(bits), set_int(0x8000));
  const VF half = set(0.5f);
  const VI tiny = hn::Sub(as_int(hn::Add(as_float(magnitude), half)), as_int(half));
  const VI odd = hn::And(hn::ShiftRight<13>(magnitude), set_int(1));
  const VI rounded = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, set_int(0xfff))));
  VI code = hn::Sub(rounded, set_int((127 - 15) << 10));
  code = hn::IfThenElse(hn::Lt(magnitude, as_int(set(0x1p-14f))), tiny, code);
  code = hn::IfThenElse(hn::Lt(magnitude, as_int(set(65520.0f))), code, set_int(0x7c00));
  code = hn::IfThenElse(hn::Gt(magnitude, set_int(0x7f800000)), set_int(0x7e00), code);
  store_low_halves(hn::Or(code, sign), &out->bits);
}

/// Two vectors, one after the other.
template <class T>
HWY_INLINE void store_two_from_float(VF a, VF b, T* out) {
  store_from_float(a, out);
  store_from_float(b, out + lanes());
}
#if HWY_TARGET != HWY_SCALAR
/// Rounds as store_from_float does, in the high halves; the low halves keep the bits that were cut
/// off.
HWY_INLINE VI rounded_to_bf16(VF v) {
  const VI bits = as_int(v);
  const VI odd = hn::And(hn::ShiftRight<16>(bits), set_int(1));
  const VI rounded = hn::Add(hn::Add(bits, set_int(0x7fff)), odd);
  const VI quiet = hn::OrAnd(set_int(0x7fc00000), bits, set_int(INT32_MIN));
  return hn::IfThenElse(hn::RebindMask(DI(), hn::IsNaN(v)), quiet, rounded);
}
HWY_INLINE void store_two_from_float(VF a, VF b, BF16* out) {
  using D = hn::Repartition<uint16_t, DF>;
  const auto low = hn::BitCast(D(), rounded_to_bf16(a));
  const auto high = hn::BitCast(D(), rounded_to_bf16(b));
  hn::StoreU(hn::ConcatOdd(D(), high, low), D(), &out->bits);
}
#endif

/// Loads the first count elements (fewer than a vector), then zeros.
template <class T>
HWY_INLINE VF load_part(const T* x, int64_t count) {
  T lane[kMaxLanes] = {};
  std::memcpy(lane, x, static_cast<size_t>(count) * sizeof(T));
  return load_as_float(lane);
}
template <class T>
HWY_INLINE void store_part(VF v, T* out, int64_t count) {
  T lane[kMaxLanes];
  store_from_float(v, lane);
  std::memcpy(out, lane, static_cast<size_t>(count) * sizeof(T));
}

/// The elements of a row that a vector holds, from i on.
struct Whole {
  static constexpr bool kIsWhole = true;
  int64_t i = 0;

  template <class T>
  HWY_INLINE VF load(const T* row) const {
    return load_as_float(row + i);
  }
  HWY_INLINE hn::Vec<DU8> load_bytes(const uint8_t* row) const { return hn::LoadU(DU8(), row + i); }
  template <class T>
  HWY_INLINE void store(VF v, T* row) const {
    store_from_float(v, row + i);
  }
  /// Stores the low bytes of the lanes.
  HWY_INLINE void store_bytes(VI v, uint8_t* row) const {
    hn::StoreU(hn::TruncateTo(DU8(), hn::BitCast(DU(), v)), DU8(), row + i);
  }
  /// v, with `other` in the lanes behind the row's end.
  HWY_INLINE VF inside(VF v, VF) const { return v; }
};
/// The last elements of a row, fewer than a vector has; loads give zeros behind them.
struct Rest {
  static constexpr bool kIsWhole = false;
  int64_t i = 0, left = 0;

  template <class T>
  HWY_INLINE VF load(const T* row) const {
    return load_part(row + i, left);
  }
  HWY_INLINE hn::Vec<DU8> load_bytes(const uint8_t* row) const {
    uint8_t tail[kMaxLanes] = {};
    std::memcpy(tail, row + i, static_cast<size_t>(left));
    return hn::LoadU(DU8(), tail);
  }
  template <class T>
  HWY_INLINE void store(VF v, T* row) const {
    store_part(v, row + i, left);
  }
  HWY_INLINE void store_bytes(VI v, uint8_t* row) const {
    uint8_t tail[kMaxLanes];
    hn::StoreU(hn::TruncateTo(DU8(), hn::BitCast(DU(), v)), DU8(), tail);
    std::memcpy(row + i, tail, static_cast<size_t>(left));
  }
  HWY_INLINE VF inside(VF v, VF other) const {
    return hn::IfThenElse(hn::FirstN(DF(), static_cast<size_t>(left)), v, other);
  }
};

/// Calls body(at) for all elements of a row: at is a Whole, and a Rest where some are left.
template <class Body>
HWY_INLINE void for_vectors(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) body(Whole{i});
  if (const int64_t left = count - i; left > 0) body(Rest{i, left});
}

/// Writes value(at) of all elements, two vectors at a time as long as there are. out may be their
/// input.
template <class Out, class Value>
HWY_INLINE void store_row(int64_t count, Out* out, const Value& value) {
  int64_t i = 0;
  for (; i + 2 * lanes() <= count; i += 2 * lanes())
    store_two_from_float(value(Whole{i}), value(Whole{i + lanes()}), out + i);
  for (; i + lanes() <= count; i += lanes()) store_from_float(value(Whole{i}), out + i);
  if (const int64_t left = count - i; left > 0) store_part(value(Rest{i, left}), out + i, left);
}

/// The polynomial with these coefficients, from that of the highest power on.
template <class... Coefficients>
HWY_INLINE VF polynomial(VF x, float highest, Coefficients... others) {
  VF sum = set(highest);
  ((sum = hn::MulAdd(sum, x, set(others))), ...);
  return sum;
}

/// Added to a number below 2^22, leaves the nearest integer (ties to even) in the low bits.
constexpr float kWholeShift = 0x1.8p23f;

/// 2^x for x <= 0, within 2 ulp; 0 below -126.5, NaN stays NaN. The polynomial is the Taylor series
/// of 2^f on [-1/2, 1/2], with a remainder below 2^-27.
HWY_INLINE VF exp2_of_negative(VF x) {
  const VF clamped = hn::IfThenElse(hn::Lt(x, set(-127.0f)), set(-127.0f), x);
  const VF shifted = hn::Add(clamped, set(kWholeShift));
  const VF whole = hn::Sub(shifted, set(kWholeShift));
  const VF f = hn::Sub(clamped, whole);
  const VF sum = polynomial(f, 1.5252734e-5f, 1.5403530e-4f, 1.3333558e-3f, 9.6181291e-3f,
                            5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.0f);
  // The exponent -127 has the bits of zero.
  const VI exponent = hn::Add(hn::Sub(as_int(shifted), as_int(set(kWholeShift))), set_int(127));
  return hn::Mul(sum, as_float(hn::ShiftLeft<23>(exponent)));
}

/// e^x, within 2 ulp; 0 below -87.3, infinity above 88.7, NaN stays NaN.
HWY_INLINE VF exp(VF x) {
  const VF clamped = hn::IfThenElse(hn::Gt(x, set(90.0f)), set(90.0f),
                                    hn::IfThenElse(hn::Lt(x, set(-90.0f)), set(-90.0f), x));
  const VF shifted = hn::MulAdd(clamped, set(1.44269504f), set(kWholeShift));
  const VF whole = hn::Sub(shifted, set(kWholeShift));
  // ln 2 in two parts, the first short enough that its product is exact.
  VF r = hn::NegMulAdd(whole, set(0.693359375f), clamped);
  r = hn::NegMulAdd(whole, set(-2.12194440e-4f), r);
  const VF sum = polynomial(r, 1.9841270e-4f, 1.3888889e-3f, 8.3333333e-3f, 4.1666667e-2f,
                            1.6666667e-1f, 0.5f, 1.0f, 1.0f);
  const VI exponent = hn::Sub(as_int(shifted), as_int(set(kWholeShift)));
  const VI first = hn::ShiftRight<1>(exponent);
  const VI second = hn::Sub(exponent, first);
  const VF scale1 = as_float(hn::ShiftLeft<23>(hn::Add(first, set_int(127))));
  const VF scale2 = as_float(hn::ShiftLeft<23>(hn::Add(second, set_int(127))));
  return hn::IfThenZeroElse(hn::Lt(x, set(-87.3f)), hn::Mul(hn::Mul(sum, scale1), scale2));
}

/// tanh x, within 3 ulp; NaN stays NaN. Near 0, where 1 - 2 / (e^2x + 1) would lose digits, x + x³
/// P(x²), with P through tanh at the Chebyshev nodes.
HWY_INLINE VF tanh(VF x) {
  const VF magnitude = hn::Abs(x), square = hn::Mul(x, x);
  const VF sum =
      polynomial(square, -0.006096714f, 0.02099718f, -0.053850908f, 0.1333277f, -0.33333328f);
  const VF near = hn::MulAdd(hn::Mul(x, square), sum, x);
  const VF power = exp(hn::Add(magnitude, magnitude));
  const VF far = hn::Sub(set(1.0f), hn::Div(set(2.0f), hn::Add(power, set(1.0f))));
  return hn::IfThenElse(hn::Lt(magnitude, set(0.625f)), near, hn::CopySign(far, x));
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
