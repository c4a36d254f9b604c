#include "kernels/gpu/attention.h"

#if KVCAL_HAS_WAVE_MATRIX
#include "kernels/gpu/wave_matrix.h"

// Attention with the matrix instructions of wavefronts, in the steps of attention_matrix.cu. Scores
// and results are kept transposed, so that a lane has one query of each tile: its maximum, sum and
// rescaling are a lane's own, and weights need no exchange to become the second factor of weights
// times values.
namespace kvcal::gpu {
namespace {

template <class Kv, int kDim>
class WaveAttend {
 public:
  using Tiles = WaveTiles<Kv, kDim>;

  __device__ __forceinline__ WaveAttend(const DeviceAttention& args, const BlockRows& rows,
                                        std::byte* shared)
      : args_(args),
        rows_(rows),
        k_(reinterpret_cast<uint16_t*>(shared)),
        v_(k_ + Tiles::kKeyParts * Tiles::kKeyElements),
        has_nonfinite_(reinterpret_cast<int*>(v_ + Tiles::kKeyParts * Tiles::kValueElements)),
        loader_(args, rows, k_, v_) {}

  __device__ __forceinline__ void run() {
    const BlockKeys keys(args_, rows_);
    const int begin = keys.first / Tiles::kKeys * Tiles::kKeys;
    loader_.load(begin);
    start_rows();
    for (int tile = begin; tile <= keys.last; tile += Tiles::kKeys) {
      __syncthreads();  // everybody has read the tile before
      loader_.store();
      if (threadIdx.x == 0) *has_nonfinite_ = 0;
      __syncthreads();
      if (tile + Tiles::kKeys <= keys.last) loader_.load(tile + Tiles::kKeys);
      multiply_keys();
      const bool is_masked = keys.is_masked(tile, Tiles::kKeys);
      scale_scores(tile, is_masked);
      soften();
      if (is_masked) set_nonfinite_values_apart(tile);
      add_values();
    }
    write();
  }

 private:
  static constexpr int kQueryTiles = Tiles::kQueryTiles, kParts = Tiles::kQueryParts;
  static constexpr int kKeyTiles = Tiles::kKeys / 16, kDimTiles = kDim / 16;

  /// A query of this lane, the same for its four quads.
  struct Row {
    float largest = kLowest, sum = 0.0f;
    float factor = 1.0f;  ///< from a sum of products to a score, see ScoreUnits
    int last_seen = -1;   ///< key; -1 without a query
  };

  __device__ static int row_of(int tile) {
    return (wave() * kQueryTiles + tile) * 16 + wave_column();
  }
  __device__ static float over_quads(float value, bool is_sum) {
    KVCAL_UNROLL
    for (int mask = 16; mask < kWave; mask *= 2) {
      const float other = wave_xor(value, mask);
      value = is_sum ? value + other : fmaxf(value, other);
    }
    return value;
  }
  __device__ __forceinline__ bool sees(const Row& row, int key) const {
    return sees_key(args_, row.last_seen, key);
  }

  __device__ __forceinline__ void start_rows() {
    const ScoreUnits units = score_units(args_, scale_of(args_, args_.k_scales, rows_.kv_head));
    cap_ = units.cap;
    KVCAL_UNROLL
    for (int i = 0; i < kQueryTiles; ++i) {
      Row& row = row_[i];
      row.factor = units.factor * load_query(i);
      const int index = row_of(i);
      if (index >= rows_.count) continue;
      row.last_seen = static_cast<int>(rows_.position(index));
      const SoftmaxStart start = softmax_start(args_, rows_.head(index));
      row.largest = start.largest;
      row.sum = wave_quad() == 0 ? start.sum : 0.0f;
    }
  }

  /// Loads a tile of queries in parts, scaled by the power of two that brings a query's largest
  /// element between 1 and 2. Returns the factor that undoes it.
  __device__ __forceinline__ float load_query(int tile) {
    float values[kDimTiles][4];
    float largest = 0.0f;
    bool is_finite_row = true;
    KVCAL_UNROLL
    for (int step = 0; step < kDimTiles; ++step) {
      KVCAL_UNROLL
      for (int e = 0; e < 4; e += 2) {
        float pair[2];
        query_pair(args_, rows_, row_of(tile), step * 16 + wave_quad() * 4 + e, pair);
        values[step][e] = pair[0];
        values[step][e + 1] = pair[1];
      }
      KVCAL_UNROLL
      for (int e = 0; e < 4; ++e) {
        is_finite_row = is_finite_row && is_finite(values[step][e]);
        largest = fmaxf(largest, magnitude_of(values[step][e]));
      }
    }
    if (!is_finite_row) largest = kInfinity;
    const uint32_t bits = bits_of(over_quads(largest, false));
    const uint32_t field = bits < 0x7f800000u ? smaller(254u - (bits >> 23), 253u) : 127u;
    const float scale = float_of(field << 23);
    KVCAL_UNROLL
    for (int step = 0; step < kDimTiles; ++step) {
      KVCAL_UNROLL
      for (int e = 0; e < 4; ++e) values[step][e] *= scale;
      split(values[step], q_[tile][step]);
    }
    return float_of((254u - field) << 23);
  }
  /// Four neighbours, rounded; and their remainders.
  __device__ __forceinline__ static void split(const float (&four)[4],
                                               WaveHalves (&parts)[kParts]) {
    KVCAL_UNROLL
    for (int w = 0; w < 2; ++w) {
      const float first = four[2 * w], second = four[2 * w + 1];
      parts[0].words[w] = pair_of<BF16>(first, second);
      parts[1].words[w] = remainders_of(parts[0].words[w], first, second);
    }
  }

  __device__ __forceinline__ void multiply_keys() {
    KVCAL_UNROLL
    for (int t = 0; t < kKeyTiles; ++t) {
      KVCAL_UNROLL
      for (int i = 0; i < kQueryTiles; ++i) scores_[i][t] = {};
      KVCAL_UNROLL
      for (int step = 0; step < kDimTiles; ++step) {
        KVCAL_UNROLL
        for (int part = 0; part < Tiles::kKeyParts; ++part) {
          const auto k = *reinterpret_cast<const WaveHalves*>(
              k_ + part * Tiles::kKeyElements +
              Tiles::key_at(t * 16 + wave_column(), step * 16 + wave_quad() * 4));
          KVCAL_UNROLL
          for (int q_part = 0; q_part < kParts; ++q_part) {
            if (q_part + part == 2) continue;
            KVCAL_UNROLL
            for (int i = 0; i < kQueryTiles; ++i)
              multiply_wave(scores_[i][t], k, q_[i][step][q_part]);
          }
        }
      }
    }
  }

  /// Calls body(score, query tile, key of the tile) for every score.
  template <class Body>
  __device__ __forceinline__ void for_each_score(const Body& body) {
    KVCAL_UNROLL
    for (int i = 0; i < kQueryTiles; ++i) {
      KVCAL_UNROLL
      for (int n = 0; n < 4 * kKeyTiles; ++n)
        body(scores_[i][n / 4].sums[n % 4], i, n / 4 * 16 + wave_quad() * 4 + n % 4);
    }
  }

  /// Converts sums of products to base-2 scores.
  __device__ __forceinline__ void scale_scores(int tile, bool is_masked) {
    for_each_score([&](float& score, int i, int) { score *= row_[i].factor; });
    if (cap_ > 0.0f)
      for_each_score([&](float& score, int, int) {
        // cap · tanh(score)
        score = cap_ - 2.0f * cap_ * reciprocal(power_of_two(2.0f * kLog2e * score) + 1.0f);
      });
    if (!is_masked) return;
    for_each_score([&](float& score, int i, int key) {
      if (!sees(row_[i], tile + key)) score = -kInfinity;
    });
  }

  /// Converts scores to softmax weights relative to the maximum so far.
  __device__ __forceinline__ void soften() {
    float largest[kQueryTiles];
    KVCAL_UNROLL
    for (int i = 0; i < kQueryTiles; ++i) largest[i] = row_[i].largest;
    for_each_score([&](float& score, int i, int) { largest[i] = fmaxf(largest[i], score); });
    KVCAL_UNROLL
    for (int i = 0; i < kQueryTiles; ++i) {
      largest[i] = over_quads(largest[i], false);
      const float correction = power_of_two(row_[i].largest - largest[i]);
      row_[i].largest = largest[i];
      row_[i].sum *= correction;
      KVCAL_UNROLL
      for (int n = 0; n < 4 * kDimTiles; ++n) out_[i][n / 4].sums[n % 4] *= correction;
    }
    for_each_score([&](float& score, int i, int) {
      score = power_of_two(score - largest[i]);
      row_[i].sum += score;
    });
  }

  /// In a matrix instruction a weight of 0 does not hide infinity or NaN. If a tile holds any, they
  /// are added to the rows that see them, and replaced by 0.
  __device__ __forceinline__ void set_nonfinite_values_apart(int tile) {
    for_each_value([&](uint16_t half, int) {
      if (is_nonfinite(half)) *has_nonfinite_ = 1;
    });
    __syncthreads();
    if (!*has_nonfinite_) return;
    for (int key = 0; key < Tiles::kKeys; ++key) add_nonfinite_values(tile, key);
    __syncthreads();
    for_each_value([&](uint16_t half, int at) {
      if (is_nonfinite(half)) v_[at] = 0;
    });
    __syncthreads();
  }
  /// Calls body(element, index) for this thread's share of V's parts.
  template <class Body>
  __device__ __forceinline__ void for_each_value(const Body& body) const {
    constexpr int kOfPart = kDim * Tiles::kKeys;
    for (int i = static_cast<int>(threadIdx.x); i < Tiles::kKeyParts * kOfPart; i += kWaveThreads) {
      const int at = i / kOfPart * Tiles::kValueElements +
                     Tiles::value_at(i % kOfPart / Tiles::kKeys, i % Tiles::kKeys);
      body(v_[at], at);
    }
  }
  __device__ static bool is_nonfinite(uint16_t half) { return (half & 0x7f80u) == 0x7f80u; }
  __device__ __forceinline__ void add_nonfinite_values(int tile, int key) {
    KVCAL_UNROLL
    for (int n = 0; n < 4 * kDimTiles; ++n) {
      const BF16 half{v_[Tiles::value_at(n / 4 * 16 + wave_quad() * 4 + n % 4, key)]};
      if (!is_nonfinite(half.bits)) continue;
      KVCAL_UNROLL
      for (int i = 0; i < kQueryTiles; ++i)
        if (sees(row_[i], tile + key)) out_[i][n / 4].sums[n % 4] += to_float(half);
    }
  }

  __device__ __forceinline__ void add_values() {
    KVCAL_UNROLL
    for (int t = 0; t < kKeyTiles; ++t) {
      WaveHalves weights[kQueryTiles][kParts];
      KVCAL_UNROLL
      for (int i = 0; i < kQueryTiles; ++i) split(scores_[i][t].sums, weights[i]);
      KVCAL_UNROLL
      for (int n = 0; n < kDimTiles; ++n) {
        KVCAL_UNROLL
        for (int part = 0; part < Tiles::kKeyParts; ++part) {
          const auto v = *reinterpret_cast<const WaveHalves*>(
              v_ + part * Tiles::kValueElements +
              Tiles::value_at(n * 16 + wave_column(), t * 16 + wave_quad() * 4));
          KVCAL_UNROLL
          for (int w_part = 0; w_part < kParts; ++w_part) {
            if (w_part + part == 2) continue;
            KVCAL_UNROLL
            for (int i = 0; i < kQueryTiles; ++i) multiply_wave(out_[i][n], v, weights[i][w_part]);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void write() {
    const float scale = scale_of(args_, args_.v_scales, rows_.kv_head);
    ThreadAmax seen;
    KVCAL_UNROLL
    for (int i = 0; i < kQueryTiles; ++i) {
      const float factor = scale / over_quads(row_[i].sum, true);
      const int row = row_of(i);
      if (row >= rows_.count) continue;
      const int64_t q_row = rows_.segment.q_begin + rows_.query(row);
      const int64_t at = (q_row * args_.heads + rows_.head(row)) * args_.v_head_dim;
      KVCAL_UNROLL
      for (int n = 0; n < kDimTiles; ++n) {
        const int d = n * 16 + wave_quad() * 4;
        if (d >= args_.v_head_dim) continue;
        KVCAL_UNROLL
        for (int e = 0; e < 4; e += 2)
          write_pair(args_, at + d + e, out_[i][n].sums[e] * factor,
                     out_[i][n].sums[e + 1] * factor, seen);
      }
    }
    fold_seen(args_.seen, seen);
  }

  const DeviceAttention& args_;
  const BlockRows& rows_;
  uint16_t *k_, *v_;
  int* has_nonfinite_;
  WaveLoader<Kv, kDim> loader_;
  float cap_ = 0.0f;
  Row row_[kQueryTiles];
  WaveHalves q_[kQueryTiles][kDimTiles][kParts];
  WaveSums scores_[kQueryTiles][kKeyTiles];  ///< scores, then weights
  WaveSums out_[kQueryTiles][kDimTiles] = {};
};

template <class Kv, int kDim>
__global__ void __launch_bounds__(kWaveThreads, 2)
    attend_with_waves_kernel([[maybe_unused]] DeviceAttention args,
                             [[maybe_unused]] AttentionGrid grid) {
#if KVCAL_CHIP_HAS_WAVE_MATRIX
  const BlockRows rows = rows_of_block(args, grid);
  if (rows.count == 0) return;
  WaveAttend<Kv, kDim>(args, rows, dynamic_shared()).run();
#endif
}

template <class Kv, int kDim>
struct WaveKernel : WaveTiles<Kv, kDim> {
  static constexpr auto kEntry = attend_with_waves_kernel<Kv, kDim>;
};

}  // namespace

bool attend_with_waves(Stream& stream, const DeviceAttention& args, const DeviceProperties& chip,
                       std::string& slow) {
  if (args.out_type != ComputeType::kFloat32 && args.head_dim % 8 != 0) {
    slow = slow_text(args, chip, "a head's width is no multiple of 8");
    return false;
  }
  return launch_for_shape<WaveKernel>(stream, args, chip, slow);
}

}  // namespace kvcal::gpu

#else

namespace kvcal::gpu {

bool attend_with_waves(Stream&, const DeviceAttention&, const DeviceProperties&, std::string&) {
  return false;
}

}  // namespace kvcal::gpu

#endif
