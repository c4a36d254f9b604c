// FP8 codes in vector code, compiled once per instruction set; see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_FP8_WRITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_FP8_WRITE_INL_H_
#undef KVCAL_KERNELS_CPU_FP8_WRITE_INL_H_
#else
#define KVCAL_KERNELS_CPU_FP8_WRITE_INL_H_
#endif

#include "kernels/cpu/vector-inl.h"
#include "quant/fp8.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

HWY_INLINE VI magnitude_bits(VF v) {
  return hn::And(as_int(v), set_int(0x7fffffff));
}

/// fp8::encode as vector code, bit for bit.
template <fp8::Format kFormat>
HWY_INLINE VI encode(VF value) {
  constexpr fp8::Layout kLayout = fp8::layout_of(kFormat);
  constexpr int kDropped = 23 - kLayout.mantissa_bits;
  constexpr bool kIsFnuz = kLayout.nan_code == 0x80;
  constexpr int32_t kAnchor = (127 + 24 - kLayout.bias - kLayout.mantissa_bits) << 23;
  const VI bits = as_int(value);
  const VI sign = hn::And(hn::ShiftRight<24>(bits), set_int(0x80));
  const VI magnitude = hn::And(bits, set_int(0x7fffffff));
  const VI anchor = set_int(kAnchor);
  const VI tiny = hn::Sub(as_int(hn::Add(as_float(magnitude), as_float(anchor))), anchor);
  const VI odd = hn::And(hn::ShiftRight<kDropped>(magnitude), set_int(1));
  const VI rounded = hn::Add(magnitude, hn::Add(odd, set_int((1 << (kDropped - 1)) - 1)));
  VI code = hn::Sub(hn::ShiftRight<kDropped>(rounded),
                    set_int((127 - kLayout.bias) << kLayout.mantissa_bits));
  code = hn::IfThenElse(hn::Lt(magnitude, set_int((128 - kLayout.bias) << 23)), tiny, code);
  const VI largest = set_int(static_cast<int32_t>(bits_of(fp8::max_value(kFormat))));
  code = hn::IfThenElse(hn::Lt(magnitude, largest), code,
                        set_int(static_cast<int32_t>(kLayout.max_code)));
  VI full = hn::Or(sign, code);
  if (kIsFnuz) full = hn::IfThenElse(hn::Eq(code, set_int(0)), code, full);
  const VI nan = hn::Or(sign, set_int(static_cast<int32_t>(kLayout.nan_code)));
  return hn::IfThenElse(hn::Gt(magnitude, set_int(0x7f800000)), nan, full);
}

/// Codes of x / scale; counts the finite values over the largest code.
template <fp8::Format kFormat>
HWY_INLINE VI quantize(VF x, VF scale, uint64_t& saturated) {
  const VF scaled = hn::Div(x, scale);
  const auto over = hn::Gt(hn::Abs(scaled), set(fp8::max_value(kFormat)));
  const auto finite = hn::RebindMask(DF(), hn::Lt(magnitude_bits(x), set_int(0x7f800000)));
  saturated += hn::CountTrue(DF(), hn::And(over, finite));
  return encode<kFormat>(scaled);
}

/// Codes of count values; returns how many saturated.
template <fp8::Format kFormat, class T>
HWY_INLINE uint64_t quantize_row(const T* x, int64_t count, float scale, uint8_t* out) {
  const DU8 d8;
  const VF divisor = set(scale);
  uint64_t saturated = 0;
  int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) {
    const VI codes = quantize<kFormat>(load_as_float(x + i), divisor, saturated);
    hn::StoreU(hn::TruncateTo(d8, hn::BitCast(DU(), codes)), d8, out + i);
  }
  if (i < count) {
    uint8_t tail[kMaxLanes];
    const VI codes = quantize<kFormat>(load_part(x + i, count - i), divisor, saturated);
    hn::StoreU(hn::TruncateTo(d8, hn::BitCast(DU(), codes)), d8, tail);
    std::memcpy(out + i, tail, static_cast<size_t>(count - i));
  }
  return saturated;
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
