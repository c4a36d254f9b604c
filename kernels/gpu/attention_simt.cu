#include <cmath>

#include "kernels/gpu/attention.h"
#include "kernels/gpu/kv_number.h"

// Attention in float32 without matrix instructions, for heads of any width: a block of queries
// against tiles of keys, with products summed in registers, four by four.
namespace kvcal::gpu {
namespace {

constexpr int kThreads = 256, kSide = 16;  ///< threads stand in a square
constexpr int kRows = 64, kKeys = 64, kEach = kRows / kSide;
constexpr int kDims = 32;         ///< of head_dim at a time
constexpr int kValues = 128;      ///< of v_head_dim to a block
constexpr int kValueKeys = 32;    ///< of a tile's at a time
constexpr float kUnseen = -1.0f;  ///< stands where a weight would; no weight is negative

// Rows are padded so that neighbours use different banks; they are read 16 bytes at a time.
struct DotTiles {
  float q[kRows][kDims + 4], k[kKeys][kDims + 4];
};
union alignas(16) Tiles {
  DotTiles dot;
  float v[kValueKeys][kValues];
};
struct alignas(16) Weights {
  float of[kRows][kKeys + 4];  ///< sums of products, then weights
  float correction[kRows];     ///< of what was summed before; at the end the sum of weights
};
static_assert(alignof(Tiles) == 16 && alignof(Weights) == 16);
static_assert(sizeof(DotTiles::q[0]) % 16 == 0 && sizeof(DotTiles::q) % 16 == 0 &&
              sizeof(Weights::of[0]) % 16 == 0);

/// One thread's share of a block's work.
template <class Kv>
class Attend {
 public:
  __device__ Attend(const DeviceAttention& args, const BlockRows& rows, Tiles& tiles,
                    Weights& weights)
      : args_(args),
        rows_(rows),
        tiles_(tiles),
        weights_(weights),
        x_(static_cast<int>(threadIdx.x) % kSide),
        y_(static_cast<int>(threadIdx.x) / kSide),
        first_value_(int64_t{blockIdx.z} * kValues),
        units_(score_units(args, scale_of(args, args.k_scales, rows.kv_head))) {
    row_ = static_cast<int>(threadIdx.x) / kThreadsOfRow;
    if (row_ < rows.count) {
      keys_ = seen_at(args, rows.position(row_));
      selected_ = args.selection.row(rows.segment.q_begin + rows.query(row_));
      slope_ = slope_of(args, rows.head(row_), rows.position(row_));
      const SoftmaxStart start = softmax_start(args, rows.head(row_));
      largest_ = start.largest;
      sum_ = part() == 0 ? start.sum : 0.0f;
    }
  }

  __device__ void run() {
    const int64_t first = seen_at(args_, rows_.position(0)).first;
    const int64_t last = rows_.position(rows_.count - 1);
    const int64_t all_begin = seen_at(args_, last).first, all_end = rows_.position(0);
    for (int64_t tile = first / kKeys * kKeys; tile <= last; tile += kKeys) {
      const bool is_masked =
          tile < all_begin || tile + kKeys - 1 > all_end || args_.selection.words != nullptr;
      multiply_keys(tile);
      args_.weight_scale > 0.0f ? soften_in_fp8(tile) : soften(tile);
      add_values(tile, is_masked);
    }
    write();
  }

 private:
  static constexpr int kThreadsOfRow = kThreads / kRows;
  __device__ int part() const { return static_cast<int>(threadIdx.x) % kThreadsOfRow; }

  /// Whether the query of this thread's row reads the key.
  __device__ bool reads(int64_t key) const {
    return keys_.holds(key) && KeySelection::holds(selected_, key);
  }

  /// Score of a key that the query of this thread's row reads, from the sum of products.
  __device__ float score(int64_t key, float sum) const {
    return relative_score(args_, rows_.segment.q_begin + rows_.query(row_), rows_.head(row_),
                          keys_.last - key, slope_.score(units_.score(sum), key));
  }

  /// Element of row `key` of the sequence, 0 after its end.
  __device__ float stored(const void* rows, int64_t key, int64_t dim, int64_t d) const {
    if (key >= rows_.segment.kv_count || d >= dim) return 0.0f;
    const int64_t row = rows_.segment.kv_begin + key;
    return number_of(
        static_cast<const Kv*>(rows)[(row * args_.kv_heads + rows_.kv_head) * dim + d]);
  }

  __device__ void multiply_keys(int64_t tile) {
    float sums[kEach][kEach] = {};
    for (int64_t begin = 0; begin < args_.head_dim; begin += kDims) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kRows * kDims; i += kThreads)
        tiles_.dot.q[i / kDims][i % kDims] =
            query_element(args_, rows_, i / kDims, begin + i % kDims);
      for (int i = static_cast<int>(threadIdx.x); i < kKeys * kDims; i += kThreads)
        tiles_.dot.k[i / kDims][i % kDims] =
            stored(args_.k, tile + i / kDims, args_.head_dim, begin + i % kDims);
      __syncthreads();
      KVCAL_UNROLL
      for (int d = 0; d < kDims; d += 4) multiply_four(d, sums);
    }
    KVCAL_UNROLL
    for (int i = 0; i < kEach; ++i) {
      KVCAL_UNROLL
      for (int j = 0; j < kEach; ++j) weights_.of[y_ + i * kSide][x_ + j * kSide] = sums[i][j];
    }
    __syncthreads();
  }

  using Four = Pack<float, 4>;
  __device__ static Four four_at(const float* at) { return *reinterpret_cast<const Four*>(at); }

  __device__ void multiply_four(int d, float (&sums)[kEach][kEach]) const {
    Four q[kEach], k[kEach];
    KVCAL_UNROLL
    for (int i = 0; i < kEach; ++i) {
      q[i] = four_at(&tiles_.dot.q[y_ + i * kSide][d]);
      k[i] = four_at(&tiles_.dot.k[x_ + i * kSide][d]);
    }
    KVCAL_UNROLL
    for (int e = 0; e < 4; ++e) {
      KVCAL_UNROLL
      for (int i = 0; i < kEach; ++i) {
        KVCAL_UNROLL
        for (int j = 0; j < kEach; ++j)
          sums[i][j] = fmaf(q[i].values[e], k[j].values[e], sums[i][j]);
      }
    }
  }

  /// Converts products to softmax weights relative to the maximum so far; a few threads per row.
  __device__ void soften(int64_t tile) {
    float* row = weights_.of[row_];
    float largest = largest_;
    for (int key = part(); key < kKeys; key += kThreadsOfRow)
      if (reads(tile + key)) largest = larger(largest, row[key] = score(tile + key, row[key]));
    for (int mask = kThreadsOfRow / 2; mask > 0; mask /= 2)
      largest = larger(largest, shuffle_xor(largest, mask));
    const float correction = exp2f(largest_ - largest);
    largest_ = largest;
    sum_ *= correction;
    for (int key = part(); key < kKeys; key += kThreadsOfRow) {
      const bool is_seen = reads(tile + key);
      const float weight = is_seen ? exp2f(row[key] - largest) : kUnseen;
      if (is_seen) sum_ += weight;
      row[key] = weight;
    }
    if (part() == 0) weights_.correction[row_] = correction;
  }

  /// The same with weights rounded to FP8, relative to the largest score up to their part of the
  /// tile.
  __device__ void soften_in_fp8(int64_t tile) {
    constexpr int kParts = kKeys / static_cast<int>(kFp8AttentionKeys);
    float* row = weights_.of[row_];
    float largest[kParts];
    for (int i = 0; i < kParts; ++i) {
      float& here = largest[i] = i == 0 ? largest_ : largest[i - 1];
      for (int key = i * kKeys / kParts + part(); key < (i + 1) * kKeys / kParts;
           key += kThreadsOfRow)
        if (reads(tile + key)) here = larger(here, row[key] = score(tile + key, row[key]));
      for (int mask = kThreadsOfRow / 2; mask > 0; mask /= 2)
        here = larger(here, shuffle_xor(here, mask));
    }
    const float last = largest[kParts - 1], correction = exp2f(largest_ - last);
    largest_ = last;
    sum_ *= correction;
    for (int key = part(); key < kKeys; key += kThreadsOfRow) {
      const float relative_to = largest[key / static_cast<int>(kFp8AttentionKeys)];
      float weight = kUnseen;
      if (reads(tile + key)) {
        const float factor = exp2f(relative_to - last), exact = exp2f(row[key] - relative_to);
        sum_ += exact * factor;
        const uint8_t code = fp8::encode(exact / args_.weight_scale, fp8::Format::kE4m3Fn);
        weight = args_.weight_scale * fp8::decode(code, fp8::Format::kE4m3Fn) * factor;
      }
      row[key] = weight;
    }
    if (part() == 0) weights_.correction[row_] = correction;
  }

  __device__ void add_values(int64_t tile, bool is_masked) {
    for (int half = 0; half < kKeys; half += kValueKeys) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kValueKeys * kValues; i += kThreads)
        tiles_.v[i / kValues][i % kValues] = stored(args_.v, tile + half + i / kValues,
                                                    args_.v_head_dim, first_value_ + i % kValues);
      __syncthreads();
      if (half == 0) {
        KVCAL_UNROLL
        for (int i = 0; i < kEach; ++i) {
          KVCAL_UNROLL
          for (int c = 0; c < kColumns; ++c) out_[i][c] *= weights_.correction[y_ + i * kSide];
        }
      }
      for (int key = 0; key < kValueKeys; ++key) add_key(key, half + key, is_masked);
    }
    __syncthreads();
  }

  __device__ void add_key(int stored_key, int key, bool is_masked) {
    const Four low = four_at(&tiles_.v[stored_key][4 * x_]);
    const Four high = four_at(&tiles_.v[stored_key][4 * x_ + kValues / 2]);
    KVCAL_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const float weight = weights_.of[y_ + i * kSide][key];
      if (is_masked && weight < 0.0f) continue;  // 0 times its value might be NaN
      KVCAL_UNROLL
      for (int e = 0; e < 4; ++e) {
        out_[i][e] = fmaf(weight, low.values[e], out_[i][e]);
        out_[i][e + 4] = fmaf(weight, high.values[e], out_[i][e + 4]);
      }
    }
  }

  __device__ void write() {
    for (int mask = kThreadsOfRow / 2; mask > 0; mask /= 2) sum_ += shuffle_xor(sum_, mask);
    if (part() == 0) weights_.correction[row_] = sum_;
    __syncthreads();
    const float scale = scale_of(args_, args_.v_scales, rows_.kv_head);
    ThreadAmax seen;
    KVCAL_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int row = y_ + i * kSide;
      if (row >= rows_.count) continue;
      const float factor = scale / weights_.correction[row];
      const int64_t q_row = rows_.segment.q_begin + rows_.query(row);
      const int64_t begin = (q_row * args_.heads + rows_.head(row)) * args_.v_head_dim;
      KVCAL_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const int64_t d = first_value_ + 4 * x_ + c % 4 + c / 4 * (kValues / 2);
        if (d < args_.v_head_dim) write_attended(args_, begin + d, out_[i][c] * factor, seen);
      }
    }
    fold_seen(args_.seen, seen);
  }

  static constexpr int kColumns = kValues / kSide;
  const DeviceAttention& args_;
  const BlockRows& rows_;
  Tiles& tiles_;
  Weights& weights_;
  const int x_, y_;
  const int64_t first_value_;
  const ScoreUnits units_;
  float out_[kEach][kColumns] = {};
  int row_ = 0;  ///< whose softmax this thread works on
  VisibleKeys keys_;
  const uint32_t* selected_ = nullptr;
  KeySlope slope_;
  float largest_ = kLowest, sum_ = 0.0f;
};

template <class Kv>
__global__ __launch_bounds__(kThreads, 2) void attend_simt_kernel(DeviceAttention args,
                                                                  AttentionGrid grid) {
  KVCAL_SHARED(Tiles, tiles);
  KVCAL_SHARED(Weights, weights);
  const BlockRows rows = rows_of_block(args, grid);
  if (rows.count == 0) return;
  Attend<Kv>(args, rows, tiles, weights).run();
}

}  // namespace

void attend_simt(Stream& stream, const DeviceAttention& args) {
  with_kv_type(args.kv_dtype, [&]<class Kv>(Kv) {
    launch_on_segments(args, attention_grid(args, kRows),
                       {.stream = stream,
                        .blocks_z = static_cast<unsigned>(ceil_div(args.v_head_dim, kValues)),
                        .threads = kThreads},
                       attend_simt_kernel<Kv>);
  });
}

}  // namespace kvcal::gpu
