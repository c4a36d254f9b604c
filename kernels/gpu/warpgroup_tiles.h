#pragma once

#include "kernels/gpu/matrix_tiles.h"
#include "kernels/gpu/warpgroup_matrix.h"

namespace kvcal::gpu {

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
