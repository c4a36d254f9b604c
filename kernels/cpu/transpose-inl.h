// Transposes rows to columns and back, four at a time. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_TRANSPOSE_INL_H_
#undef KVCAL_KERNELS_CPU_TRANSPOSE_INL_H_
#else
#define KVCAL_KERNELS_CPU_TRANSPOSE_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
using D4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<D4>;

HWY_INLINE void transpose(V4& a, V4& b, V4& c, V4& d) {
  const D4 d4;
  const V4 ab_low = hn::InterleaveLower(d4, a, b), ab_high = hn::InterleaveUpper(d4, a, b);
  const V4 cd_low = hn::InterleaveLower(d4, c, d), cd_high = hn::InterleaveUpper(d4, c, d);
  a = hn::ConcatLowerLower(d4, cd_low, ab_low);
  b = hn::ConcatUpperUpper(d4, cd_low, ab_low);
  c = hn::ConcatLowerLower(d4, cd_high, ab_high);
  d = hn::ConcatUpperUpper(d4, cd_high, ab_high);
}
#endif

/// out[d * stride + i] = rows[i][d] for four rows.
HWY_INLINE void rows_to_columns(const float* const* rows, int64_t count, float* out,
                                int64_t stride) {
  int64_t d = 0;
#if HWY_TARGET != HWY_SCALAR
  const D4 d4;
  for (; d + 4 <= count; d += 4) {
    V4 r0 = hn::LoadU(d4, rows[0] + d), r1 = hn::LoadU(d4, rows[1] + d);
    V4 r2 = hn::LoadU(d4, rows[2] + d), r3 = hn::LoadU(d4, rows[3] + d);
    transpose(r0, r1, r2, r3);
    hn::Store(r0, d4, out + d * stride);
    hn::Store(r1, d4, out + (d + 1) * stride);
    hn::Store(r2, d4, out + (d + 2) * stride);
    hn::Store(r3, d4, out + (d + 3) * stride);
  }
#endif
  for (; d < count; ++d)
    for (int64_t i = 0; i < 4; ++i) std::memcpy(out + d * stride + i, rows[i] + d, sizeof(float));
}

/// out[i * count + d] = in[d * stride + i] · factors[i] for four rows.
HWY_INLINE void columns_to_rows(const float* in, int64_t stride, const float* factors,
                                int64_t count, float* out) {
  int64_t d = 0;
#if HWY_TARGET != HWY_SCALAR
  const D4 d4;
  const V4 factor = hn::Load(d4, factors);
  for (; d + 4 <= count; d += 4) {
    V4 c0 = hn::Mul(hn::Load(d4, in + d * stride), factor);
    V4 c1 = hn::Mul(hn::Load(d4, in + (d + 1) * stride), factor);
    V4 c2 = hn::Mul(hn::Load(d4, in + (d + 2) * stride), factor);
    V4 c3 = hn::Mul(hn::Load(d4, in + (d + 3) * stride), factor);
    transpose(c0, c1, c2, c3);
    hn::StoreU(c0, d4, out + d);
    hn::StoreU(c1, d4, out + count + d);
    hn::StoreU(c2, d4, out + 2 * count + d);
    hn::StoreU(c3, d4, out + 3 * count + d);
  }
#endif
  for (; d < count; ++d)
    for (int64_t i = 0; i < 4; ++i) out[i * count + d] = in[d * stride + i] * factors[i];
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
