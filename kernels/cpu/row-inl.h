// Sums over rows, and of rows. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_ROW_INL_H_
#undef KVCAL_KERNELS_CPU_ROW_INL_H_
#else
#define KVCAL_KERNELS_CPU_ROW_INL_H_
#endif

#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// A row in memory.
struct StoredRow {
  const float* x = nullptr;
  HWY_INLINE VF at(int64_t i) const { return load_as_float(x + i); }
  HWY_INLINE VF part(int64_t i, int64_t count) const { return load_part(x + i, count); }
};

/// Computes add(value, sum) over a row, in an order that depends only on the width. Extra lanes
/// hold `behind`, which must not change the sum.
template <class Row, class Add>
HWY_INLINE float sum_over(const Row& row, int64_t width, VF behind, const Add& add) {
  VF sum0 = set(0.0f), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 4 * lanes() <= width; i += 4 * lanes()) {
    sum0 = add(row.at(i), sum0);
    sum1 = add(row.at(i + lanes()), sum1);
    sum2 = add(row.at(i + 2 * lanes()), sum2);
    sum3 = add(row.at(i + 3 * lanes()), sum3);
  }
  for (; i + lanes() <= width; i += lanes()) sum0 = add(row.at(i), sum0);
  if (const int64_t left = width - i; left > 0) {
    const auto inside = hn::FirstN(DF(), static_cast<size_t>(left));
    sum0 = add(hn::IfThenElse(inside, row.part(i, left), behind), sum0);
  }
  return hn::GetLane(hn::SumOfLanes(DF(), hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

/// Mean of the squares of a row's distances from mean.
HWY_INLINE float mean_square(const float* x, int64_t width, float mean) {
  const VF means = set(mean);
  const auto add_square = [means](VF v, VF sum) HWY_ATTR {
    const VF distance = hn::Sub(v, means);
    return hn::MulAdd(distance, distance, sum);
  };
  return sum_over(StoredRow{x}, width, means, add_square) / static_cast<float>(width);
}

/// out += weight · x.
HWY_INLINE void add_row(const float* x, float weight, int64_t width, float* out) {
  const VF times = set(weight);
  int64_t i = 0;
  for (; i + lanes() <= width; i += lanes())
    store_from_float(hn::MulAdd(times, load_as_float(x + i), load_as_float(out + i)), out + i);
  if (const int64_t left = width - i; left > 0)
    store_part(hn::MulAdd(times, load_part(x + i, left), load_part(out + i, left)), out + i, left);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
