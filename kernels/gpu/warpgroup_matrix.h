// Asynchronous products of 16-bit float matrices by a warpgroup, which is four warps: instructions
// of sm_90a (has_warpgroup_matrix in chips.h), simulated for the tests. All are 64 × 16 times 16 ×
// 64. The sums, and a first factor in registers, have 16 rows to a warp, in the layout of
// mma.m16n8k16. Source: PTX ISA, wgmma.mma_async.

#pragma once

#include "kernels/gpu/matrix_panel.h"
#include "kernels/gpu/matrix_tiles.h"
#include "kernels/gpu/warp_matrix.h"

namespace kvcal::gpu {

constexpr int kWarpgroup = 128;

/// The sums of a product: 16 rows of a warp, 64 columns.
using WarpgroupSums = FragmentC*;
constexpr int kWarpgroupSums = 8;

#if defined(KVCAL_GPU_SIMULATED)

/// What a product reads at row or column `outer` and depth k of a matrix in shared memory.
inline uint16_t described_element(uint64_t descriptor, int outer, int k, bool transposed) {
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
    simulator::stop("a matrix in shared memory is not in panels");
  const auto field = [&](int bit) {
    return static_cast<uint32_t>(descriptor >> bit & 0x3fffu) << 4;
  };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  const auto row = static_cast<uint32_t>(transposed ? k : outer);
  const auto column = static_cast<uint32_t>(transposed ? outer : k);
  uint32_t address = start + row / 8 * stride + row % 8 * 128 + column * 2;
  if (column >= kPanelColumns) address += leading - kPanelColumns * 2;
  return simulator::published_element(address ^ (address >> 7 & 7u) << 4);
}

/// sums += a · b, or = without adds.
template <class T>
inline void multiply_now(WarpgroupSums sums, const uint32_t (&a)[4], uint64_t b, bool transposed,
                         bool adds) {
  const auto& all = simulator::exchange(simulator::kMatrix, a, 4);
  const int group = lane() / 4, pair = lane() % 4 * 2;
  float rows[2][16];
  for (int half = 0; half < 2; ++half)
    for (int k = 0; k < 16; ++k) {
      const uint32_t word = all[group * 4 + k % 8 / 2][k / 8 * 2 + half];
      rows[half][k] = half_number(T{static_cast<uint16_t>(word >> (k % 2 * 16))});
    }
  for (int column = 0; column < 2 * kWarpgroupSums; ++column) {
    float numbers[16];
    for (int k = 0; k < 16; ++k)
      numbers[k] =
          half_number(T{described_element(b, column / 2 * 8 + pair + column % 2, k, transposed)});
    for (int half = 0; half < 2; ++half) {
      float& sum = sums[column / 2].sums[half * 2 + column % 2];
      if (!adds) sum = 0.0f;
      for (int k = 0; k < 16; ++k) sum += rows[half][k] * numbers[k];
    }
  }
}

template <class T, bool kTransposed, bool kAdds>
inline void start_product(WarpgroupSums sums, const FragmentA& a, uint64_t b) {
  simulator::start_product(
      [sums, &a, b] { multiply_now<T>(sums, a.words, b, kTransposed, kAdds); });
}
template <class T, bool kTransposed, bool kAdds>
inline void start_product(WarpgroupSums sums, uint64_t a, uint64_t b) {
  simulator::start_product([sums, a, b] {
    uint32_t words[4];
    for (int w = 0; w < 4; ++w) {
      const int row = warp() % 4 * 16 + w % 2 * 8 + lane() / 4, k = w / 2 * 8 + lane() % 4 * 2;
      words[w] = described_element(a, row, k, false) |
                 static_cast<uint32_t>(described_element(a, row, k + 1, false)) << 16;
    }
    multiply_now<T>(sums, words, b, kTransposed, kAdds);
  });
}
inline void fence_registers() {
  simulator::fence_registers();
}
inline void commit_products() {
  simulator::commit_products();
}
template <int kLeft>
inline void await_products() {
  simulator::await_products(kLeft);
}
inline void hold(float&) {}
inline void hold(uint32_t&) {}
inline void publish_shared() {
  simulator::publish_shared();
}

#else

#define KVCAL_FOUR_SUMS(i) \
  "+f"(sums[i].sums[0]), "+f"(sums[i].sums[1]), "+f"(sums[i].sums[2]), "+f"(sums[i].sums[3])
#define KVCAL_SUMS                                                                \
  KVCAL_FOUR_SUMS(0), KVCAL_FOUR_SUMS(1), KVCAL_FOUR_SUMS(2), KVCAL_FOUR_SUMS(3), \
      KVCAL_FOUR_SUMS(4), KVCAL_FOUR_SUMS(5), KVCAL_FOUR_SUMS(6), KVCAL_FOUR_SUMS(7)
/// A product of elements of type, with the predicate from operand `adds` and other operands behind
/// the sums.
#define KVCAL_PRODUCT(type, adds, operands)                                               \
  "{.reg .pred adds; setp.ne.b32 adds, " adds                                             \
  ", 0; wgmma.mma_async.sync.aligned."                                                    \
  "m64n64k16.f32." type "." type                                                          \
  " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "                                  \
  "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, " \
  "%29, %30, %31}, " operands ";}"

/// Starts sums += a · b, or = where it does not add; a in registers, b described, as rows of the
/// product's depth where it is transposed. All of the warpgroup must take part; registers must be
/// left alone until the product was awaited. T is F16 or BF16.
template <class T, bool kTransposed, bool kAdds>
__device__ __forceinline__ void start_product(WarpgroupSums sums, const FragmentA& a, uint64_t b) {
  if constexpr (std::is_same_v<T, F16>)
    asm volatile(KVCAL_PRODUCT("f16", "%38", "{%32, %33, %34, %35}, %36, adds, 1, 1, %37")
                 : KVCAL_SUMS
                 : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "l"(b),
                   "n"(kTransposed), "n"(kAdds));
  else
    asm volatile(KVCAL_PRODUCT("bf16", "%38", "{%32, %33, %34, %35}, %36, adds, 1, 1, %37")
                 : KVCAL_SUMS
                 : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "l"(b),
                   "n"(kTransposed), "n"(kAdds));
}
/// The same with a described, too.
template <class T, bool kTransposed, bool kAdds>
__device__ __forceinline__ void start_product(WarpgroupSums sums, uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, F16>)
    asm volatile(KVCAL_PRODUCT("f16", "%35", "%32, %33, adds, 1, 1, 0, %34")
                 : KVCAL_SUMS
                 : "l"(a), "l"(b), "n"(kTransposed), "n"(kAdds));
  else
    asm volatile(KVCAL_PRODUCT("bf16", "%35", "%32, %33, adds, 1, 1, 0, %34")
                 : KVCAL_SUMS
                 : "l"(a), "l"(b), "n"(kTransposed), "n"(kAdds));
}
#undef KVCAL_PRODUCT
#undef KVCAL_SUMS
#undef KVCAL_FOUR_SUMS

/// Orders accesses to registers of products before the products that follow.
__device__ __forceinline__ void fence_registers() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Makes a group of the products started since the last one.
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most so many groups are under way.
template <int kLeft>
__device__ __forceinline__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
/// Keeps the compiler from moving uses of a product's register to the other side.
__device__ __forceinline__ void hold(float& of_sums) {
  asm volatile("" : "+f"(of_sums)::"memory");
}
__device__ __forceinline__ void hold(uint32_t& of_factor) {
  asm volatile("" : "+r"(of_factor)::"memory");
}
/// Makes this thread's earlier writes to shared memory visible to products behind the next barrier.
__device__ __forceinline__ void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

constexpr int kWarpgroupThreads = 2 * kWarpgroup;  ///< of a block

/// Layout in shared memory for the matrix instructions of warpgroups: panels of 64 rows and
/// columns. K and V have two buffers each, so that a tile is written while another is multiplied.
template <class Kv, int kDim>
struct WarpgroupTiles : MatrixHalves<Kv> {
  using Base = MatrixHalves<Kv>;
  static constexpr int kWidth = kDim;
  static constexpr int kRowTiles = 1;  ///< of 16 rows, to a warp
  static constexpr unsigned kThreads = kWarpgroupThreads;
  static constexpr int kRows = kWarpgroupThreads / kWarp * 16;
  static constexpr int kBuffers = 2;
  /// Whether registers hold the queries. From shared memory, products of 64 columns would take all
  /// of its bandwidth.
  static constexpr bool kKeepsQueries = kDim <= 128;

  static constexpr int kPanels = kDim / kPanelColumns;  ///< of 64 rows
  static constexpr int kPanelElements = 64 * kPanelColumns;
  /// Of a tile of K or V, and of queries, of which each warpgroup has 64 rows.
  __device__ static int at(int row, int chunk) {
    const auto column = static_cast<unsigned>(chunk);
    return static_cast<int>(column / 8) * kPanelElements +
           panel_at(row, static_cast<int>(column % 8));
  }
  __device__ static int query_at(int row, int chunk) {
    return row / 64 * kPanels * kPanelElements + at(row % 64, chunk);
  }
  /// Of 8 threads that write codes as 16-bit elements, 4 have the next row, so that they use all
  /// banks: a thread's two chunks are adjacent.
  template <int kChunks>
  __device__ static ChunkPlace first_chunk(int thread) {
    if constexpr (Base::kHasCodes)
      return {thread / (2 * kChunks) * 2 + thread / 4 % 2,
              thread / 8 % (kChunks / 4) * 4 + thread % 4};
    else
      return {thread / kChunks, thread % kChunks};
  }
  static constexpr int kQueryElements = kRows * kDim, kTileElements = kMatrixKeys * kDim;
  static constexpr int kStagedBytes = 0;
  static constexpr size_t kAlignment = 1024;  ///< of panels; shared memory is aligned to 16
  static constexpr size_t kSharedBytes =
      kAlignment + size_t{2} * (Base::kQueryParts * kQueryElements + 2 * kBuffers * kTileElements) +
      2 * sizeof(float) * kRows + 3 * 16;
};

}  // namespace kvcal::gpu
