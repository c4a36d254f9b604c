#pragma once

#include "kernels/gpu/attention.h"
#include "kernels/gpu/attention_tiles.h"

// What warps do with the scores and sums of their own rows, which they keep in registers.
namespace kvcal::gpu {

/// Rows of a warp: kRowTiles tiles of 16, each in the layout of mma.m16n8k16's sums.
template <class Of>
class AttentionRows {
 public:
  using Tiles = Of;
  using Half = typename Tiles::Half;

  __device__ __forceinline__ AttentionRows(const DeviceAttention& args, const BlockRows& rows,
                                           std::byte* shared)
      : args_(args), rows_(rows), store_(args, rows, shared) {}

 protected:
  static constexpr int kRowTiles = Tiles::kRowTiles, kKeyTiles = kMatrixKeys / 8;
  static constexpr int kValueTiles = Tiles::kWidth / 8;

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

  /// Converts scores to softmax weights relative to the maximum so far. Calls rescale(row of
  /// fragments, its half, factor) for what was summed relative to the maximum before.
  template <class Rescale>
  __device__ __forceinline__ void soften(const Rescale& rescale) {
    KVCAL_UNROLL
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      Row& row = row_[i / 2][i % 2];
      float largest = row.largest;
      KVCAL_UNROLL
      for (int n = 0; n < 2 * kKeyTiles; ++n)
        largest = fmaxf(largest, scores_[i / 2][n / 2].sums[i % 2 * 2 + n % 2]);
      largest = fmaxf(largest, shuffle_xor(largest, 1));
      largest = fmaxf(largest, shuffle_xor(largest, 2));
      const float correction = power_of_two(row.largest - largest);
      row.sum *= correction;
      rescale(i / 2, i % 2, correction);
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
  __device__ __forceinline__ void rescale_sums(int i, int half, float correction) {
    KVCAL_UNROLL
    for (int n = 0; n < kValueTiles; ++n) {
      out_[i][n].sums[2 * half] *= correction;
      out_[i][n].sums[2 * half + 1] *= correction;
    }
  }

  /// 16 keys of the weights, rounded; and their remainders.
  __device__ __forceinline__ void round_weights(
      int step, FragmentA (&weights)[Tiles::kQueryParts][kRowTiles]) const {
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
  }

  /// In a matrix instruction a weight of 0 does not hide infinity or NaN. If a tile holds any, they
  /// are added to the rows that see them, and replaced by 0. True if so.
  __device__ __forceinline__ bool set_nonfinite_values_apart(int tile, uint16_t* v) {
    store_.look_for_nonfinite_values(v);
    __syncthreads();
    if (!*store_.has_nonfinite) return false;
    for (int key = 0; key < kMatrixKeys; ++key) add_nonfinite_values(tile, v, key);
    __syncthreads();
    store_.clear_nonfinite_values(v);
    __syncthreads();
    return true;
  }
  __device__ __forceinline__ void add_nonfinite_values(int tile, const uint16_t* v, int key) {
    KVCAL_UNROLL
    for (int n = 0; n < kValueTiles; ++n) {
      KVCAL_UNROLL
      for (int e = 0; e < 2; ++e) {
        const Half half{v[Tiles::at(key, n) + pair() + e]};
        if (!store_.is_nonfinite(half.bits)) continue;
        KVCAL_UNROLL
        for (int i = 0; i < 2 * kRowTiles; ++i) {
          if (sees(row_of(i / 2, i % 2), tile + key))
            out_[i / 2][n].sums[i % 2 * 2 + e] += to_float(half);
        }
      }
    }
  }

  __device__ __forceinline__ void write(const BlockRows& rows) {
    const float scale = scale_of(args_, args_.v_scales, rows.kv_head) * store_.power_of_tiles();
    ThreadAmax seen;
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
  MatrixStore<Tiles> store_;
  ScoreUnits units_;
  Row row_[kRowTiles][2];
  FragmentC scores_[kRowTiles][kKeyTiles];  ///< scores, then weights
  FragmentC out_[kRowTiles][kValueTiles] = {};
};

}  // namespace kvcal::gpu
