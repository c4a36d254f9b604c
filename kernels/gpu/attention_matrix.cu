#include "kernels/gpu/attention.h"

#if KVCAL_HAS_WARP_MATRIX
#include "kernels/gpu/attention_rows.h"

// Attention with matrix instructions, 16-bit products and float32 sums, after FlashAttention-2 (Dao
// 2023). Each warp keeps the scores and sums of its own rows in registers; tiles of keys and values
// are copied to shared memory while the previous tile is computed.
namespace kvcal::gpu {
namespace {

template <class Kv, int kDim>
class MatrixAttend : AttentionRows<MatrixTiles<Kv, kDim>> {
  using Base = AttentionRows<MatrixTiles<Kv, kDim>>;
  using Base::args_, Base::rows_, Base::store_, Base::scores_, Base::out_;
  using Base::kKeyTiles, Base::kRowTiles, Base::kValueTiles;

 public:
  using Tiles = typename Base::Tiles;
  using Base::Base;

  __device__ __forceinline__ void run(const AttentionGrid& grid) {
    const BlockKeys keys(args_, rows_);
    const int begin = keys.first / kMatrixKeys * kMatrixKeys;
    store_.start();
    if constexpr (Tiles::kIsDirect) store_.copy_tile(store_.k, 0, begin);
    if constexpr (Tiles::kHasCodes) store_.copy_codes(begin);
    store_.load_queries();
    this->start_rows();
    for (int tile = begin; tile <= keys.last; tile += kMatrixKeys) {
      const bool has_next = tile + kMatrixKeys <= keys.last;
      await_keys(tile, has_next);
      multiply_keys();
      await_values(tile, has_next);
      const bool is_masked = keys.is_masked(tile, kMatrixKeys);
      this->scale_scores(tile, is_masked);
      this->soften([&](int i, int half, float by) { this->rescale_sums(i, half, by); });
      if (is_masked) this->set_nonfinite_values_apart(tile, store_.v);
      add_values();
    }
    // Again, which costs less than keeping it in registers.
    this->write(rows_of_block(args_, grid));
  }

 private:
  /// Returns when the keys of the tile have arrived; starts further copies where there is room.
  __device__ __forceinline__ void await_keys(int tile, bool has_next) {
    if constexpr (Tiles::kIsDirect) {
      await_copies();
      __syncthreads();
      store_.copy_tile(store_.v, 1, tile);
    } else if constexpr (Tiles::kHasCodes) {
      await_copies();
      __syncthreads();
      store_.spread_codes();
      __syncthreads();
      if (has_next) store_.copy_codes(tile + kMatrixKeys);
    } else {
      __syncthreads();
      store_.split_tile(store_.k, 0, tile);
      store_.split_tile(store_.v, 1, tile);
      __syncthreads();
    }
  }
  /// Returns when the values of the tile have arrived.
  __device__ __forceinline__ void await_values(int tile, bool has_next) {
    if constexpr (Tiles::kIsDirect) {
      await_copies();
      __syncthreads();
      if (has_next) store_.copy_tile(store_.k, 0, tile + kMatrixKeys);
    }
  }

  __device__ __forceinline__ void multiply_keys() {
    KVCAL_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      KVCAL_UNROLL
      for (int n = 0; n < kKeyTiles; ++n) scores_[i][n] = {};
    }
    KVCAL_UNROLL
    for (int step = 0; step < kDim / 16; ++step) {
      FragmentA q[Tiles::kQueryParts][kRowTiles];
      KVCAL_UNROLL
      for (int part = 0; part < Tiles::kQueryParts; ++part) {
        KVCAL_UNROLL
        for (int i = 0; i < kRowTiles; ++i)
          load_matrices(
              q[part][i].words,
              store_.q + part * Tiles::kQueryElements +
                  Tiles::at((warp() * kRowTiles + i) * 16 + lane() % 16, 2 * step + lane() / 16),
              false);
      }
      KVCAL_UNROLL
      for (int part = 0; part < Tiles::kKeyParts; ++part) {
        KVCAL_UNROLL
        for (int n = 0; n < kKeyTiles; n += 2) {
          uint32_t k[4];
          load_matrices(
              k,
              store_.k + part * Tiles::kTileElements +
                  Tiles::at(n * 8 + lane() / 16 * 8 + lane() % 8, 2 * step + lane() / 8 % 2),
              false);
          multiply_parts(q, part, k, n, scores_);
        }
      }
    }
  }

  /// Sums of 16 columns += a in parts · one part of b; omits the smallest products.
  template <int kColumnTiles>
  __device__ __forceinline__ void multiply_parts(
      const FragmentA (&a)[Tiles::kQueryParts][kRowTiles], int part_of_b, const uint32_t (&b)[4],
      int column, FragmentC (&sums)[kRowTiles][kColumnTiles]) const {
    const FragmentB low{{b[0], b[1]}}, high{{b[2], b[3]}};
    KVCAL_UNROLL
    for (int part = 0; part < Tiles::kQueryParts; ++part) {
      if (part + part_of_b == 2) continue;
      KVCAL_UNROLL
      for (int i = 0; i < kRowTiles; ++i) {
        multiply_fragments<typename Tiles::Half>(sums[i][column], a[part][i], low);
        multiply_fragments<typename Tiles::Half>(sums[i][column + 1], a[part][i], high);
      }
    }
  }

  __device__ __forceinline__ void add_values() {
    KVCAL_UNROLL
    for (int step = 0; step < kKeyTiles / 2; ++step) {
      FragmentA weights[Tiles::kQueryParts][kRowTiles];
      this->round_weights(step, weights);
      KVCAL_UNROLL
      for (int part = 0; part < Tiles::kKeyParts; ++part) {
        KVCAL_UNROLL
        for (int n = 0; n < kValueTiles; n += 2) {
          uint32_t v[4];
          load_matrices(v,
                        store_.v + part * Tiles::kTileElements +
                            Tiles::at(step * 16 + lane() % 16, n + lane() / 16),
                        true);
          multiply_parts(weights, part, v, n, out_);
        }
      }
    }
  }
};

template <class Kv, int kDim>
__global__ __launch_bounds__(kMatrixThreads,
                             2) void attend_with_matrices_kernel(DeviceAttention args,
                                                                 AttentionGrid grid) {
  const BlockRows rows = rows_of_block(args, grid);
  if (rows.count == 0) return;
  MatrixAttend<Kv, kDim>(args, rows, dynamic_shared()).run(grid);
}

template <class Kv, int kDim>
struct WarpKernel : MatrixTiles<Kv, kDim> {
  static constexpr auto kEntry = attend_with_matrices_kernel<Kv, kDim>;
};

}  // namespace

bool attend_with_warps(Stream& stream, const DeviceAttention& args, const DeviceProperties& chip,
                       std::string& slow) {
  return launch_for_shape<WarpKernel>(stream, args, chip, slow);
}

}  // namespace kvcal::gpu

#else

namespace kvcal::gpu {

bool attend_with_warps(Stream&, const DeviceAttention& args, const DeviceProperties& chip,
                       std::string& slow) {
  if (args.out_type != ComputeType::kFloat32)
    slow = slow_text(args, chip, "there is no kernel for those of " + chip.architecture);
  return false;
}

}  // namespace kvcal::gpu

#endif
