// A row of numbers as bytes with one scale. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_BYTE_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_BYTE_ROW_INL_H_
#undef KVCAL_KERNELS_CPU_BYTE_ROW_INL_H_
#else
#define KVCAL_KERNELS_CPU_BYTE_ROW_INL_H_
#endif

#include <limits>

#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Writes the bytes offset + x / scale, from -127 to 127 without the offset, and gives the scale,
/// which depends only on the row; 0: the row is too small to matter, or not finite. count is a
/// multiple of the lanes.
template <class In>
HWY_INLINE float write_bytes(const In* x, int64_t count, int32_t offset, uint8_t* out) {
  constexpr float kSmallest = 0x1p-100f;
  VI largest = set_int(0);
  for (int64_t i = 0; i < count; i += lanes())
    largest = hn::Max(largest, hn::And(as_int(load_as_float(x + i)), set_int(0x7fffffff)));
  const float amax = hn::GetLane(as_float(hn::MaxOfLanes(DI(), largest)));
  const bool is_usable = amax >= kSmallest && amax <= std::numeric_limits<float>::max();
  const VF inverse = set(is_usable ? 127.0f / amax : 0.0f);
  for (int64_t i = 0; i < count; i += lanes()) {
    const VI nearest = hn::NearestInt(hn::Mul(inverse, load_as_float(x + i)));
    hn::StoreU(hn::TruncateTo(DU8(), hn::BitCast(DU(), hn::Add(nearest, set_int(offset)))), DU8(),
               out + i);
  }
  return is_usable ? amax / 127.0f : 0.0f;
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
