// A row of numbers as bytes with one scale. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_BYTE_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_BYTE_ROW_INL_H_
#undef KVCAL_KERNELS_CPU_BYTE_ROW_INL_H_
#else
#define KVCAL_KERNELS_CPU_BYTE_ROW_INL_H_
#endif

#include "kernels/cpu/score_rows.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Writes the bytes offset + x / scale of a row, and gives its scale. count is a multiple of the
/// lanes.
template <class In>
HWY_INLINE float write_bytes(const In* x, int64_t count, int32_t offset, uint8_t* out) {
  VI largest = set_int(0);
  for (int64_t i = 0; i < count; i += lanes())
    largest = hn::Max(largest, hn::And(as_int(load_as_float(x + i)), set_int(0x7fffffff)));
  const ByteScale bytes(hn::GetLane(as_float(hn::MaxOfLanes(DI(), largest))));
  const VF inverse = set(bytes.inverse);
  for (int64_t i = 0; i < count; i += lanes()) {
    const VI nearest = hn::NearestInt(hn::Mul(inverse, load_as_float(x + i)));
    hn::StoreU(hn::TruncateTo(DU8(), hn::BitCast(DU(), hn::Add(nearest, set_int(offset)))), DU8(),
               out + i);
  }
  return bytes.scale;
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
