// Amax of a kernel's output, computed while it writes. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_AMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_AMAX_INL_H_
#undef KVCAL_KERNELS_CPU_AMAX_INL_H_
#else
#define KVCAL_KERNELS_CPU_AMAX_INL_H_
#endif

#include "kernels/cpu/amax_slot.h"
#include "kernels/cpu/vector-inl.h"
#include "quant/half.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Magnitudes of count elements in memory.
template <class T>
Magnitudes magnitudes_of(const T* x, int64_t count) {
  const VI infinity = set_int(0x7f800000);
  VI largest = set_int(0), nonfinite = set_int(0);
  const auto fold = [&](VF v) HWY_ATTR {
    const VI magnitude = hn::And(as_int(v), set_int(0x7fffffff));
    const auto finite = hn::Lt(magnitude, infinity);
    largest = hn::Max(largest, hn::IfThenElseZero(finite, magnitude));
    nonfinite = hn::Add(nonfinite, hn::IfThenZeroElse(finite, set_int(1)));
  };
  int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) fold(load_as_float(x + i));
  if (i < count) fold(load_part(x + i, count - i));
  return {.amax = hn::GetLane(as_float(hn::MaxOfLanes(DI(), largest))),
          .nonfinite = static_cast<uint64_t>(hn::GetLane(hn::SumOfLanes(DI(), nonfinite)))};
}

inline float as_stored(float x, const float*) {
  return x;
}
inline float as_stored(float x, const BF16*) {
  return to_float(to_bf16(x));
}
inline float as_stored(float x, const F16*) {
  return to_float(to_f16(x));
}

/// Bits of the smallest float32 magnitude that rounds to infinity in Out.
template <class Out>
constexpr int32_t kOverflowBits = 0x7f800000;
template <>
inline constexpr int32_t kOverflowBits<BF16> = 0x7f7f8000;
template <>
inline constexpr int32_t kOverflowBits<F16> = 0x477ff000;  // 65520

/// Magnitudes of elements written from float32 vectors: call fold with each vector of a row, then
/// end_row. Rounding is monotonic, so only the largest value is rounded; a row is read again only
/// where it holds NaN or infinity.
template <class Out>
class AmaxFold {
 public:
  HWY_INLINE AmaxFold() : row_(set_int(0)), finite_(set_int(0)) {}  // not a default: GCC's targets
  HWY_INLINE void fold(VF value) {
    row_ = hn::Max(row_, hn::And(as_int(value), set_int(0x7fffffff)));
  }
  /// Folds only the first count lanes.
  HWY_INLINE void fold_part(VF value, int64_t count) {
    fold(hn::IfThenElseZero(hn::FirstN(DF(), static_cast<size_t>(count)), value));
  }
  /// row: the count elements written from the vectors since the last call.
  HWY_INLINE void end_row(const Out* row, int64_t count) {
    if (hn::AllTrue(DI(), hn::Lt(row_, set_int(kOverflowBits<Out>)))) {
      finite_ = hn::Max(finite_, row_);
    } else {
      rest_.merge(magnitudes_of(row, count));
    }
    row_ = set_int(0);
  }
  /// Magnitudes of all completed rows.
  HWY_INLINE Magnitudes magnitudes() const {
    Magnitudes all = rest_;
    const float largest = hn::GetLane(as_float(hn::MaxOfLanes(DI(), finite_)));
    all.merge({.amax = as_stored(largest, static_cast<const Out*>(nullptr)), .nonfinite = 0});
    return all;
  }

 private:
  VI row_, finite_;
  Magnitudes rest_;
};

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
