// Small matrix products of attention. Queries lie in the lanes of vectors, so each is summed by
// itself. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_QUERY_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_QUERY_TILE_INL_H_
#undef KVCAL_KERNELS_CPU_QUERY_TILE_INL_H_
#else
#define KVCAL_KERNELS_CPU_QUERY_TILE_INL_H_
#endif

#include "kernels/cpu/attention_lanes-inl.h"

#ifndef KVCAL_KERNELS_CPU_QUERY_TILE_ONCE
#define KVCAL_KERNELS_CPU_QUERY_TILE_ONCE
namespace kvcal::cpu {

/// Queries of one task: consecutive tokens times the heads that share a KV head.
constexpr int64_t kQueries = 48;

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Vectors of queries that one step of multiply keeps in registers, and rows: 24 sums of 32
/// registers, or 12 of 16.
constexpr int64_t kStrip = 3;
constexpr int64_t kRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
static_assert(kQueries % (kStrip * kLanes) == 0);

/// out [M, kQueries] = a [M, K] · b [K, kQueries]; with factors, out · factor + a · b.
struct Product {
  const float* a = nullptr;
  int64_t row_stride = 0, step_stride = 0;  ///< a(m, k) is at m * row_stride + k * step_stride
  int64_t rows = 0, steps = 0;
  const float* b = nullptr;
  const float* factor = nullptr;  ///< [kQueries], or null
  float* out = nullptr;
};

template <int64_t kTile>
HWY_INLINE void multiply_tile(const Product& p, int64_t row, int64_t column) {
  VF sums[kTile][kStrip];
  float* out = p.out + row * kQueries + column;
  for (int64_t m = 0; m < kTile; ++m)
    for (int64_t i = 0; i < kStrip; ++i)
      sums[m][i] = p.factor ? hn::Mul(hn::Load(DF(), out + m * kQueries + i * kLanes),
                                      hn::Load(DF(), p.factor + column + i * kLanes))
                            : set(0.0f);
  const float* a = p.a + row * p.row_stride;
  const float* b = p.b + column;
  for (int64_t k = 0; k < p.steps; ++k) {
    const VF b0 = hn::Load(DF(), b), b1 = hn::Load(DF(), b + kLanes),
             b2 = hn::Load(DF(), b + 2 * kLanes);
    for (int64_t m = 0; m < kTile; ++m) {
      const VF x = set(a[m * p.row_stride]);
      sums[m][0] = hn::MulAdd(x, b0, sums[m][0]);
      sums[m][1] = hn::MulAdd(x, b1, sums[m][1]);
      sums[m][2] = hn::MulAdd(x, b2, sums[m][2]);
    }
    a += p.step_stride;
    b += kQueries;
  }
  for (int64_t m = 0; m < kTile; ++m)
    for (int64_t i = 0; i < kStrip; ++i)
      hn::Store(sums[m][i], DF(), out + m * kQueries + i * kLanes);
}

inline HWY_NOINLINE void multiply(const Product& p) {
  for (int64_t column = 0; column < kQueries; column += kStrip * kLanes) {
    int64_t row = 0;
    for (; row + kRows <= p.rows; row += kRows) multiply_tile<kRows>(p, row, column);
    for (; row + 2 <= p.rows; row += 2) multiply_tile<2>(p, row, column);
    for (; row < p.rows; ++row) multiply_tile<1>(p, row, column);
  }
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
