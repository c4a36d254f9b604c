// Layouts in shared memory of the tiles that attention with matrices multiplies.

#pragma once

#include "kernels/gpu/attention.h"

namespace kvcal::gpu {

constexpr int kMatrixThreads = 128;
constexpr int kMatrixKeys = 64;  ///< of a tile

/// Element types of products. FP8 and float16 caches are exact in float16; queries and weights are
/// rounded to it. bfloat16 and float32 use bfloat16, whose range holds every number: exactly for
/// bfloat16 caches, else as a sum of two parts, without the product of the two smaller parts.
template <class Kv>
struct MatrixHalves {
  using Element = Kv;
  static constexpr bool kIsDirect = std::is_same_v<Kv, F16> || std::is_same_v<Kv, BF16>;
  static constexpr bool kHasCodes = CodesOf<Kv>::kAre;
  using Half = std::conditional_t<kHasCodes || std::is_same_v<Kv, F16>, F16, BF16>;
  static constexpr int kQueryParts = std::is_same_v<Half, BF16> ? 2 : 1;
  static constexpr int kKeyParts = std::is_same_v<Kv, float> ? 2 : 1;
  /// Weights are scaled by 2^kHeadroom, so that float16 keeps more of the small ones.
  static constexpr float kHeadroom = std::is_same_v<Half, F16> ? 14.0f : 0.0f;
  /// Exponent to which a query's largest element is scaled.
  static constexpr int kQueryExponent = std::is_same_v<Half, F16> ? 14 : 0;
};

/// 16 bytes of a row of K or V.
struct ChunkPlace {
  int key, chunk;
};

/// Layout in shared memory for the matrix instructions of warps.
template <class Kv, int kDim>
struct MatrixTiles : MatrixHalves<Kv> {
  using Base = MatrixHalves<Kv>;
  static constexpr int kWidth = kDim;
  static constexpr int kRowTiles = kDim <= 128 ? 2 : 1;  ///< of 16 rows, to a warp
  static constexpr unsigned kThreads = kMatrixThreads;
  static constexpr int kRows = kMatrixThreads / kWarp * 16 * kRowTiles;
  static constexpr int kBuffers = 1;  ///< for tiles of K, and of V

  // Rows of 8-element chunks, ordered so that a column uses all banks.
  static constexpr bool kIsSwizzled = kDim % 64 == 0;
  static constexpr int kStride = kIsSwizzled ? kDim : kDim + 8;
  __device__ static int at(int row, int chunk) {
    return row * kStride + (kIsSwizzled ? chunk ^ (row & 7) : chunk) * 8;
  }
  __device__ static int query_at(int row, int chunk) { return at(row, chunk); }
  /// The first chunk that a thread copies, where kChunks make a row.
  template <int kChunks>
  __device__ static ChunkPlace first_chunk(int thread) {
    return {thread / kChunks, thread % kChunks};
  }
  static constexpr int kQueryElements = kRows * kStride, kTileElements = kMatrixKeys * kStride;
  static constexpr int kStagedBytes = Base::kHasCodes ? kMatrixKeys * kDim : 0;  ///< of K, and of V
  static constexpr size_t kSharedBytes =
      size_t{2} * (Base::kQueryParts * kQueryElements + 2 * Base::kKeyParts * kTileElements) +
      2 * kStagedBytes + 2 * sizeof(float) * kRows + 3 * 16;
};

}  // namespace kvcal::gpu
