// Dequantized rows of a KV cache. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_KV_READ_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_KV_READ_INL_H_
#undef KVCAL_KERNELS_CPU_KV_READ_INL_H_
#else
#define KVCAL_KERNELS_CPU_KV_READ_INL_H_
#endif

#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Converts count elements from one float type to another.
template <class In, class Out>
HWY_INLINE void convert_row(const In* in, int64_t count, Out* out) {
  store_row(
      count, out, [in](int64_t i) HWY_ATTR { return load_as_float(in + i); },
      [in](int64_t i, int64_t left) HWY_ATTR { return load_part(in + i, left); });
}

/// FP8 code → float16 bits, without the correction of the exponent bias: every FP8 number fits into
/// float16 by a shift, and float16's conversion handles subnormals.
template <fp8::Format kFormat>
HWY_INLINE hn::Vec<DU16> half_bits(hn::Vec<DU16> code) {
  const DU16 d;
  if (kFormat == fp8::Format::kE5m2) return hn::ShiftLeft<8>(code);
  const auto magnitude = hn::And(code, hn::Set(d, uint16_t{0x7f}));
  const auto sign = hn::ShiftLeft<8>(hn::And(code, hn::Set(d, uint16_t{0x80})));
  const auto bits = hn::Or(sign, hn::ShiftLeft<7>(magnitude));
  const auto is_nan = kFormat == fp8::Format::kE4m3Fn
                          ? hn::Eq(magnitude, hn::Set(d, uint16_t{0x7f}))
                          : hn::Eq(code, hn::Set(d, uint16_t{0x80}));
  return hn::IfThenElse(is_nan, hn::Set(d, uint16_t{0x7e00}), bits);
}

/// Remaining correction of the exponent bias: float16's is 15.
template <fp8::Format kFormat>
constexpr float kBiasScale = static_cast<float>(1 << (15 - fp8::layout_of(kFormat).bias));

/// scale · code, rounded once: products with powers of two are exact.
template <fp8::Format kFormat>
HWY_INLINE VF read_codes(const uint8_t* codes, VF scale) {
  const auto wide = hn::PromoteTo(DU16(), hn::LoadU(DU8(), codes));
  return hn::Mul(scale, float_of_half(half_bits<kFormat>(wide)));
}

template <fp8::Format kFormat, class Out>
void read_fp8_row(const uint8_t* codes, int64_t count, float scale, Out* out) {
  const VF times = set(scale * kBiasScale<kFormat>);
  store_row(
      count, out, [=](int64_t i) HWY_ATTR { return read_codes<kFormat>(codes + i, times); },
      [=](int64_t i, int64_t left) HWY_ATTR {
        uint8_t tail[kMaxLanes] = {};
        std::memcpy(tail, codes + i, static_cast<size_t>(left));
        return read_codes<kFormat>(tail, times);
      });
}

/// Some rows of one head.
struct KvRows {
  KvDType dtype = KvDType::kFloat32;
  const std::byte* first = nullptr;
  int64_t row_stride = 0;  ///< in elements
  int64_t rows = 0, head_dim = 0;
  float scale = 1.0f;  ///< FP8 only
};

template <class Out>
HWY_INLINE void read_row(const KvRows& rows, const std::byte* row, Out* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(row);
  switch (rows.dtype) {
    case KvDType::kFloat32:
      return convert_row(reinterpret_cast<const float*>(row), rows.head_dim, out);
    case KvDType::kFloat16:
      return convert_row(reinterpret_cast<const F16*>(row), rows.head_dim, out);
    case KvDType::kBFloat16:
      return convert_row(reinterpret_cast<const BF16*>(row), rows.head_dim, out);
    case KvDType::kFp8E4m3:
      return read_fp8_row<fp8::Format::kE4m3Fn>(codes, rows.head_dim, rows.scale, out);
    case KvDType::kFp8E4m3Fnuz:
      return read_fp8_row<fp8::Format::kE4m3Fnuz>(codes, rows.head_dim, rows.scale, out);
    case KvDType::kFp8E5m2:
      return read_fp8_row<fp8::Format::kE5m2>(codes, rows.head_dim, rows.scale, out);
  }
}

/// Converts rows to out [rows, head_dim], whose rows are out_stride apart.
template <class Out>
HWY_INLINE void read_kv(const KvRows& rows, Out* out, int64_t out_stride) {
  const int64_t stride = rows.row_stride * bytes_per_element(rows.dtype);
  for (int64_t row = 0; row < rows.rows; ++row)
    read_row(rows, rows.first + row * stride, out + row * out_stride);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
