#include "kernels/gpu/attention_launch.h"

#if KVCAL_HAS_WARP_MATRIX
#include "kernels/gpu/attention_tiles.h"

// Attention with matrix instructions, 16-bit products and float32 sums, after FlashAttention-2 (Dao
// 2023). Each warp keeps the scores and sums of its own rows in registers; tiles of keys and values
// are copied to shared memory while the previous tile is computed.
namespace kvcal::gpu {
namespace {

template <class Kv, int kDim>
class MatrixAttend {
 public:
  using Tiles = MatrixTiles<Kv, kDim>;
  using Half = typename Tiles::Half;

  __device__ __forceinline__ MatrixAttend(const DeviceAttention& args, const BlockRows& rows,
                                          std::byte* shared)
      : args_(args), rows_(rows), store_(args, rows, shared) {}

  __device__ __forceinline__ void run(const AttentionGrid& grid) {
    const BlockKeys keys(args_, rows_);
    const int begin = keys.first / kMatrixKeys * kMatrixKeys;
    store_.start();
    if constexpr (Tiles::kIsDirect) store_.copy_tile(store_.k, 0, begin);
    if constexpr (Tiles::kIsStaged) store_.copy_codes(begin);
    store_.load_queries();
    start_rows();
    for (int tile = begin; tile <= keys.last; tile += kMatrixKeys) {
      const bool has_next = tile + kMatrixKeys <= keys.last;
      await_keys(tile, has_next);
      multiply_keys();
      await_values(tile, has_next);
      const bool is_masked = keys.is_masked(tile, kMatrixKeys);
      scale_scores(tile, is_masked);
      soften();
      if (is_masked) set_nonfinite_values_apart(tile);
      add_values();
    }
    write(rows_of_block(args_, grid));  // again, which costs less than keeping it in registers
  }

 private:
  static constexpr int kRowTiles = Tiles::kRowTiles, kKeyTiles = kMatrixKeys / 8;
  static constexpr int kValueTiles = kDim / 8;

  __device__ static int group() { return lane() / 4; }
  __device__ static int pair() { return lane() % 4 * 2; }
  __device__ static int row_of(int tile, int half) {
    return (warp() * kRowTiles + tile) * 16 + half * 8 + group();
  }

  __device__ __forceinline__ bool sees(int row, int key) const {
    return sees_key(args_, store_.last_seen[row], key);
  }

  __device__ __forceinline__ void start_rows() {
    units_ = score_units(args_,
                         scale_of(args_, args_.k_scales, rows_.kv_head) * store_.power_of_tiles());
    KVCAL_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      KVCAL_UNROLL
      for (int half = 0; half < 2; ++half) {
        Row& row = row_[i][half];
        const int index = row_of(i, half);
        if (index >= rows_.count) continue;
        const SoftmaxStart start = softmax_start(args_, rows_.head(index));
        row.largest = start.largest;
        row.sum = pair() == 0 ? start.sum * power_of_two(Tiles::kHeadroom) : 0.0f;
      }
    }
  }

  /// Returns when the keys of the tile have arrived; starts further copies where there is room.
  __device__ __forceinline__ void await_keys(int tile, bool has_next) {
    if constexpr (Tiles::kIsDirect) {
      await_copies();
      __syncthreads();
      store_.copy_tile(store_.v, 1, tile);
    } else if constexpr (Tiles::kIsStaged) {
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
        multiply_fragments<Half>(sums[i][column], a[part][i], low);
        multiply_fragments<Half>(sums[i][column + 1], a[part][i], high);
      }
    }
  }

  /// Calls body(score, row of fragments, its half, key of the tile) for every score.
  template <class Body>
  __device__ __forceinline__ void for_each_score(const Body& body) {
    KVCAL_UNROLL
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      KVCAL_UNROLL
      for (int n = 0; n < 2 * kKeyTiles; ++n)
        body(scores_[i / 2][n / 2].sums[i % 2 * 2 + n % 2], i / 2, i % 2,
             n / 2 * 8 + pair() + n % 2);
    }
  }

  /// Converts sums of products to base-2 scores.
  __device__ __forceinline__ void scale_scores(int tile, bool is_masked) {
    for_each_score([&](float& score, int i, int half, int) {
      score *= units_.factor * store_.unscale[row_of(i, half)];
    });
    if (units_.cap > 0.0f) {
      const float cap = units_.cap;
      for_each_score([&](float& score, int, int, int) {
        // cap · tanh(score)
        score = cap - 2.0f * cap * reciprocal(power_of_two(2.0f * kLog2e * score) + 1.0f);
      });
    }
    if (!is_masked) return;
    for_each_score([&](float& score, int i, int half, int key) {
      if (!sees(row_of(i, half), tile + key)) score = -kInfinity;
    });
  }

  /// Converts scores to softmax weights relative to the maximum so far.
  __device__ __forceinline__ void soften() {
    KVCAL_UNROLL
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      Row& row = row_[i / 2][i % 2];
      float largest = row.largest;
      KVCAL_UNROLL
      for (int n = 0; n < 2 * kKeyTiles; ++n)
        largest = fmaxf(largest, scores_[i / 2][n / 2].sums[i % 2 * 2 + n % 2]);
      largest = fmaxf(largest, shuffle_xor(largest, 1));
      largest = fmaxf(largest, shuffle_xor(largest, 2));
      rescale(i / 2, i % 2, power_of_two(row.largest - largest));
      row.largest = largest;
      largest -= Tiles::kHeadroom;
      KVCAL_UNROLL
      for (int n = 0; n < 2 * kKeyTiles; ++n) {
        float& score = scores_[i / 2][n / 2].sums[i % 2 * 2 + n % 2];
        score = power_of_two(score - largest);
        row.sum += score;
      }
    }
  }
  __device__ __forceinline__ void rescale(int i, int half, float correction) {
    row_[i][half].sum *= correction;
    KVCAL_UNROLL
    for (int n = 0; n < kValueTiles; ++n) {
      out_[i][n].sums[2 * half] *= correction;
      out_[i][n].sums[2 * half + 1] *= correction;
    }
  }
  /// In a matrix instruction a weight of 0 does not hide infinity or NaN. If a tile holds any, they
  /// are added to the rows that see them, and replaced by 0.
  __device__ __forceinline__ void set_nonfinite_values_apart(int tile) {
    store_.look_for_nonfinite_values();
    __syncthreads();
    if (!*store_.has_nonfinite) return;
    for (int key = 0; key < kMatrixKeys; ++key) add_nonfinite_values(tile, key);
    __syncthreads();
    store_.clear_nonfinite_values();
    __syncthreads();
  }
  __device__ __forceinline__ void add_nonfinite_values(int tile, int key) {
    KVCAL_UNROLL
    for (int n = 0; n < kValueTiles; ++n) {
      KVCAL_UNROLL
      for (int e = 0; e < 2; ++e) {
        const Half half{store_.v[Tiles::at(key, n) + pair() + e]};
        if (!store_.is_nonfinite(half.bits)) continue;
        KVCAL_UNROLL
        for (int i = 0; i < 2 * kRowTiles; ++i) {
          if (sees(row_of(i / 2, i % 2), tile + key))
            out_[i / 2][n].sums[i % 2 * 2 + e] += to_float(half);
        }
      }
    }
  }

  __device__ __forceinline__ void add_values() {
    KVCAL_UNROLL
    for (int step = 0; step < kKeyTiles / 2; ++step) {
      FragmentA weights[Tiles::kQueryParts][kRowTiles];
      KVCAL_UNROLL
      for (int i = 0; i < kRowTiles; ++i) {
        KVCAL_UNROLL
        for (int w = 0; w < 4; ++w) {
          const FragmentC& from = scores_[i][2 * step + w / 2];
          const float first = from.sums[w % 2 * 2], second = from.sums[w % 2 * 2 + 1];
          const uint32_t rounded = pair_of<Half>(first, second);
          weights[0][i].words[w] = rounded;
          if constexpr (Tiles::kQueryParts == 2)
            weights[1][i].words[w] = remainders_of(rounded, first, second);
        }
      }
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

  __device__ __forceinline__ void write(const BlockRows& rows) {
    const float scale = scale_of(args_, args_.v_scales, rows.kv_head) * store_.power_of_tiles();
    SeenAmax seen;
    KVCAL_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      KVCAL_UNROLL
      for (int half = 0; half < 2; ++half) {
        float sum = row_[i][half].sum;
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        const int row = row_of(i, half);
        if (row >= rows.count) continue;
        const int64_t q_row = rows.segment.q_begin + rows.query(row);
        const int64_t at = (q_row * args_.heads + rows.head(row)) * args_.v_head_dim;
        KVCAL_UNROLL
        for (int n = 0; n < kValueTiles; ++n)
          if (n * 8 < args_.v_head_dim)
            write_pair(args_, at + n * 8 + pair(), out_[i][n].sums[2 * half] * (scale / sum),
                       out_[i][n].sums[2 * half + 1] * (scale / sum), seen);
      }
    }
    fold_seen(args_.seen, seen);
  }

  /// A query of this thread's fragments.
  struct Row {
    float largest = kLowest, sum = 0.0f;
  };
  const DeviceAttention& args_;
  const BlockRows& rows_;
  MatrixStore<Kv, kDim> store_;
  ScoreUnits units_;
  Row row_[kRowTiles][2];
  FragmentC scores_[kRowTiles][kKeyTiles];  ///< scores, then weights
  FragmentC out_[kRowTiles][kValueTiles] = {};
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
