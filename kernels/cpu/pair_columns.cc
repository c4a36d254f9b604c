#include "kernels/cpu/pair_columns.h"

#include <algorithm>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pair_columns.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

void pack_columns(const BF16* weight, int64_t rows, int64_t pairs, const PairColumns& to) {
  // Pairs of bfloat16 are moved as if they were float32. The output stays in the level 1 cache
  // until all rows have passed.
  constexpr int64_t kPairs = 128;
  const auto* from = reinterpret_cast<const float*>(weight);
  auto* out = reinterpret_cast<float*>(to.out);
  for (int64_t pair = 0; pair < pairs; pair += kPairs)
    for (int64_t row = 0; row < rows; row += 4) {
      const float* four[4];
      for (int64_t i = 0; i < 4; ++i) four[i] = from + std::min(row + i, rows - 1) * pairs + pair;
      rows_to_columns(four, std::min(kPairs, pairs - pair), out + pair * to.columns + row,
                      to.columns);
    }
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(pack_columns);

void pack_pair_columns(const BF16* weight, int64_t rows, int64_t pairs, const PairColumns& to) {
  HWY_DYNAMIC_DISPATCH(pack_columns)(weight, rows, pairs, to);
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
