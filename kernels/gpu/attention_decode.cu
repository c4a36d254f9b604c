#include <algorithm>
#include <cmath>

#include "kernels/gpu/attention.h"

// Split-KV attention for a few queries per sequence, as in generation, where reading the cache
// dominates. Blocks take ranges of keys that begin at multiples of their length, and
// a second kernel combines the partial results in order. Everything is float32, from the cache's
// own bytes.
namespace kvcal::gpu {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kKeys = kThreads;  ///< of a range; a thread to each
constexpr int kPieceBytes = 128, kChunkBytes = 16, kChunks = kPieceBytes / kChunkBytes;
constexpr int kStride = kPieceBytes + kChunkBytes;  ///< so that threads' rows lie in other banks
constexpr int64_t kMostQueries = 8, kMostHeadDim = 640;
constexpr float kUnseen = -1.0f;  ///< stands where a weight would; no weight is negative

/// Partial results of the blocks, for each [segment, query, head, range of keys].
struct KeyRanges {
  int64_t queries = 0, count = 0;  ///< of a segment, at most
  float* sums = nullptr;           ///< [..., v_head_dim] values times weights
  struct Softmax {
    float largest, sum;
  }* softmax = nullptr;

  __device__ int64_t at(const DeviceAttention& args, int64_t segment, int64_t query, int64_t head,
                        int64_t range) const {
    return ((segment * queries + query) * args.heads + head) * count + range;
  }
};

template <int kRows>
struct alignas(16) DecodingShared {
  std::byte rows[kKeys][kStride];  ///< a piece of every key's row
  float weights[kRows][kKeys];     ///< scores, then weights
};
/// Dynamic shared memory of a block: its queries.
constexpr size_t query_bytes(int rows, int64_t head_dim) {
  return sizeof(float) * static_cast<size_t>(rows * head_dim);
}
static_assert(sizeof(DecodingShared<8>) + query_bytes(8, kMostHeadDim) <= kSharedWithoutAsking);
static_assert(alignof(DecodingShared<1>) == 16 && sizeof(DecodingShared<1>::rows[0]) % 16 == 0 &&
              sizeof(DecodingShared<1>::weights[0]) % 16 == 0);

/// kRows queries and heads that share a KV head, against one range of keys.
template <class Kv, int kRows>
class Decode {
 public:
  __device__ Decode(const DeviceAttention& args, const KeyRanges& out,
                    DecodingShared<kRows>& shared, float* queries)
      : args_(args), out_(out), shared_(shared), q_(queries) {
    segment_ = args.current_segments[blockIdx.y];
    range_ = blockIdx.x / args.kv_heads;
    kv_head_ = static_cast<int>(blockIdx.x % args.kv_heads);
    begin_ = range_ * kKeys;
    const int64_t first_row = int64_t{blockIdx.z} * kRows;
    count_ = static_cast<int>(smaller<int64_t>(kRows, segment_.q_count * group() - first_row));
    first_query_ = first_row;
    if (count_ <= 0) return;
    const int64_t last = position(count_ - 1);
    first_seen_ = seen_at(args, position(0)).first;
    end_ = smaller(begin_ + kKeys, last + 1);
    is_masked_ = begin_ < seen_at(args, last).first || end_ - 1 > position(0);
  }
  __device__ bool has_work() const {
    return count_ > 0 && begin_ < end_ && begin_ + kKeys > first_seen_;
  }

  __device__ void run() {
    for (int i = thread(); i < kRows * static_cast<int>(args_.head_dim); i += kThreads)
      q_[i] = query(i / static_cast<int>(args_.head_dim), i % static_cast<int>(args_.head_dim));
    multiply_keys();
    soften();
    for (int64_t piece = 0; piece < args_.v_head_dim; piece += kPieceBytes / kBytes)
      add_values(piece);
  }

 private:
  static constexpr int kBytes = sizeof(Kv);
  static constexpr int kEach = kChunkBytes / kBytes;  ///< elements of a chunk
  static constexpr int kWord = 4 / kBytes;  ///< elements of a word: each lane has one of a piece
  using Chunk = Pack<uint32_t, 4>;
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ int64_t group() const { return args_.heads / args_.kv_heads; }
  __device__ int64_t query_of(int row) const { return (first_query_ + row) / group(); }
  __device__ int64_t head_of(int row) const {
    return kv_head_ * group() + (first_query_ + row) % group();
  }
  __device__ int64_t position(int row) const {
    return segment_.kv_count - segment_.q_count + query_of(row);
  }
  __device__ float query(int row, int d) const {
    if (row >= count_) return 0.0f;
    const QueryHead query = query_head(args_, segment_.q_begin + query_of(row), head_of(row));
    return turned(query.x, d, query.angles, query.table_row);
  }

  /// Copies elements [piece, piece + kPieceBytes / kBytes) of the range's rows; zeros where there
  /// are none.
  __device__ void bring(const void* from, int64_t dim, int64_t piece) {
    __syncthreads();
    KVCAL_UNROLL
    for (int i = 0; i < kKeys * kChunks / kThreads; ++i) {
      const int key = (thread() + i * kThreads) / kChunks, chunk = thread() % kChunks;
      const int64_t d = piece + chunk * kEach;
      Chunk bytes{};
      if (begin_ + key < end_ && d < dim) {
        const int64_t row = (segment_.kv_begin + begin_ + key) * args_.kv_heads + kv_head_;
        bytes = *reinterpret_cast<const Chunk*>(static_cast<const Kv*>(from) + row * dim + d);
      }
      *reinterpret_cast<Chunk*>(&shared_.rows[key][chunk * kChunkBytes]) = bytes;
    }
    __syncthreads();
  }

  __device__ void multiply_keys() {
    float sums[kRows] = {};
    for (int64_t piece = 0; piece < args_.head_dim; piece += kPieceBytes / kBytes) {
      bring(args_.k, args_.head_dim, piece);
      const int left = static_cast<int>(args_.head_dim - piece);
      for (int chunk = 0; chunk < kChunks && chunk * kEach < left; ++chunk) {
        const auto keys =
            *reinterpret_cast<const Chunk*>(&shared_.rows[thread()][chunk * kChunkBytes]);
        multiply_chunk(keys, q_ + piece + chunk * kEach, sums);
      }
    }
    const ScoreUnits units = score_units(args_, scale_of(args_, args_.k_scales, kv_head_));
    KVCAL_UNROLL
    for (int row = 0; row < kRows; ++row) shared_.weights[row][thread()] = units.score(sums[row]);
    if (args_.slopes) add_slopes();
    if (args_.relative.states) add_relative();
    __syncthreads();
  }
  /// To the scores of this thread's key.
  __device__ void add_slopes() {
    for (int row = 0; row < count_; ++row) {
      float& score = shared_.weights[row][thread()];
      score = slope_of(args_, head_of(row), position(row)).score(score, begin_ + thread());
    }
  }
  /// Adds the logits of this thread's key by its distances.
  __device__ void add_relative() {
    for (int row = 0; row < count_; ++row) {
      const int64_t distance = position(row) - begin_ - thread();
      float& score = shared_.weights[row][thread()];
      if (distance >= 0)
        score =
            relative_score(args_, segment_.q_begin + query_of(row), head_of(row), distance, score);
    }
  }
  __device__ void multiply_chunk(const Chunk& keys, const float* q, float (&sums)[kRows]) const {
    float numbers[kChunkBytes / 4][kWord];
    KVCAL_UNROLL
    for (int w = 0; w < kChunkBytes / 4; ++w) numbers_of_word(keys.values[w], numbers[w], Kv{});
    KVCAL_UNROLL
    for (int e = 0; e < kEach; e += 4) {
      KVCAL_UNROLL
      for (int row = 0; row < kRows; ++row) {
        const auto four = *reinterpret_cast<const Pack<float, 4>*>(q + row * args_.head_dim + e);
        KVCAL_UNROLL
        for (int i = 0; i < 4; ++i)
          sums[row] = fmaf(four.values[i], numbers[(e + i) / kWord][(e + i) % kWord], sums[row]);
      }
    }
  }

  /// Converts scores to softmax weights relative to the range's maximum; each warp takes rows.
  __device__ void soften() {
    for (int row = warp(); row < count_; row += kWarps) {
      const VisibleKeys seen = seen_at(args_, position(row));
      float* weights = shared_.weights[row];
      float largest = kLowest, sum = 0.0f;
      for (int key = lane(); key < kKeys; key += kWarp)
        if (seen.holds(begin_ + key)) largest = larger(largest, weights[key]);
      largest = warp_max(largest);
      for (int key = lane(); key < kKeys; key += kWarp) {
        const bool is_seen = seen.holds(begin_ + key);
        const float weight = is_seen ? exp2f(weights[key] - largest) : 0.0f;
        sum += weight;
        weights[key] = is_seen || begin_ + key >= end_ ? weight : kUnseen;
      }
      sum = warp_sum(sum);
      if (lane() == 0)
        out_.softmax[out_.at(args_, blockIdx.y, query_of(row), head_of(row), range_)] = {largest,
                                                                                         sum};
    }
  }

  /// Sums the values: each warp a quarter of the keys, then all quarters in order.
  __device__ void add_values(int64_t piece) {
    bring(args_.v, args_.v_head_dim, piece);
    float sums[kRows][kWord] = {};
    const int first = warp() * kWarp;
    for (int key = first; key < first + kWarp && begin_ + key < end_; key += 4)
      add_four_keys(key, sums);
    __syncthreads();
    auto& quarters = reinterpret_cast<float(&)[kWarps][kRows][kWarp * kWord]>(shared_.rows);
    static_assert(sizeof(quarters) <= sizeof(shared_.rows));
    KVCAL_UNROLL
    for (int row = 0; row < kRows; ++row) {
      KVCAL_UNROLL
      for (int e = 0; e < kWord; ++e) quarters[warp()][row][lane() * kWord + e] = sums[row][e];
    }
    __syncthreads();
    for (int i = thread(); i < count_ * kWarp * kWord; i += kThreads) {
      const int row = i / (kWarp * kWord), d = i % (kWarp * kWord);
      if (piece + d >= args_.v_head_dim) continue;
      float sum = quarters[0][row][d];
      for (int quarter = 1; quarter < kWarps; ++quarter) sum += quarters[quarter][row][d];
      const int64_t at = out_.at(args_, blockIdx.y, query_of(row), head_of(row), range_);
      out_.sums[at * args_.v_head_dim + piece + d] = sum;
    }
  }
  __device__ void add_four_keys(int key, float (&sums)[kRows][kWord]) const {
    float values[4][kWord];
    KVCAL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto word = *reinterpret_cast<const uint32_t*>(&shared_.rows[key + i][lane() * 4]);
      numbers_of_word(word, values[i], Kv{});
    }
    KVCAL_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const auto weights = *reinterpret_cast<const Pack<float, 4>*>(&shared_.weights[row][key]);
      KVCAL_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (is_masked_ && weights.values[i] < 0.0f) continue;  // 0 times NaN would be NaN
        KVCAL_UNROLL
        for (int e = 0; e < kWord; ++e)
          sums[row][e] = fmaf(weights.values[i], values[i][e], sums[row][e]);
      }
    }
  }

  const DeviceAttention& args_;
  const KeyRanges& out_;
  DecodingShared<kRows>& shared_;
  float* q_;  ///< [kRows, head_dim]
  Segment segment_;
  int64_t range_ = 0, begin_ = 0, end_ = 0;  ///< keys, counted from the sequence's first
  int64_t first_query_ = 0, first_seen_ = 0;
  int kv_head_ = 0, count_ = 0;  ///< of rows
  bool is_masked_ = false;       ///< some row does not see some key of [begin, end)
};

template <class Kv, int kRows>
__global__ __launch_bounds__(kThreads, 3) void decode_kernel(DeviceAttention args, KeyRanges out) {
  KVCAL_SHARED(DecodingShared<kRows>, shared);
  Decode<Kv, kRows> decode(args, out, shared, reinterpret_cast<float*>(dynamic_shared()));
  if (decode.has_work()) decode.run();
}

/// One block per query and head.
__global__ __launch_bounds__(kThreads) void combine_kernel(DeviceAttention args, KeyRanges from) {
  const Segment segment = args.current_segments[blockIdx.y];
  const int64_t query = blockIdx.x / args.heads, head = blockIdx.x % args.heads;
  if (query >= segment.q_count) return;
  const VisibleKeys seen = seen_at(args, segment.kv_count - segment.q_count + query);
  const int64_t begin = seen.first / kKeys, end = seen.last / kKeys + 1;
  const int64_t at = from.at(args, blockIdx.y, query, head, 0);
  const SoftmaxStart start = softmax_start(args, head);
  float largest = start.largest;
  for (int64_t s = begin; s < end; ++s) largest = larger(largest, from.softmax[at + s].largest);
  float total = start.sum * exp2f(start.largest - largest);
  for (int64_t s = begin; s < end; ++s)
    total = fmaf(exp2f(from.softmax[at + s].largest - largest), from.softmax[at + s].sum, total);
  const int kv_head = static_cast<int>(head / (args.heads / args.kv_heads));
  const float factor = scale_of(args, args.v_scales, kv_head) / total;
  ThreadAmax written;
  for (int64_t d = threadIdx.x; d < args.v_head_dim; d += kThreads) {
    float sum = 0.0f;
    for (int64_t s = begin; s < end; ++s)
      sum = fmaf(exp2f(from.softmax[at + s].largest - largest),
                 from.sums[(at + s) * args.v_head_dim + d], sum);
    write_attended(args, ((segment.q_begin + query) * args.heads + head) * args.v_head_dim + d,
                   sum * factor, written);
  }
  fold_seen(args.seen, written);
}

KeyRanges key_ranges_of(const AttentionArgs& args) {
  KeyRanges out;
  for (const Segment& segment : args.segments) {
    out.queries = std::max(out.queries, segment.q_count);
    out.count = std::max(out.count, ceil_div(segment.kv_count, kKeys));
  }
  return out;
}
int64_t results_of(const AttentionArgs& args, const KeyRanges& out) {
  return static_cast<int64_t>(args.segments.size()) * out.queries * args.heads * out.count;
}

template <class Kv, int kRows>
void launch_decoding(Stream& stream, const DeviceAttention& args, const KeyRanges& out) {
  const int64_t rows = out.queries * (args.heads / args.kv_heads);
  launch("attention",
         {.stream = stream,
          .blocks = out.count * args.kv_heads,
          .blocks_y = static_cast<unsigned>(args.segments.size()),
          .blocks_z = static_cast<unsigned>(ceil_div(rows, kRows)),
          .threads = kThreads,
          .shared_bytes = query_bytes(kRows, args.head_dim)},
         decode_kernel<Kv, kRows>, args, out);
}

}  // namespace

int64_t decoding_scratch(const AttentionArgs& args) {
  const int64_t bytes = bytes_per_element(args.kv_dtype);
  const KeyRanges out = key_ranges_of(args);
  if (out.queries == 0 || out.queries > kMostQueries || args.segments.size() > 65535) return 0;
  if (args.head_dim * bytes % kChunkBytes != 0 || args.v_head_dim * bytes % kChunkBytes != 0)
    return 0;
  if (!is_aligned(args.k, kChunkBytes) || !is_aligned(args.v, kChunkBytes) ||
      args.head_dim > kMostHeadDim)
    return 0;
  return results_of(args, out) * (args.v_head_dim + 2);
}

void attend_decoding(Stream& stream, const DeviceAttention& args, float* scratch) {
  KeyRanges out = key_ranges_of(args);
  out.softmax = reinterpret_cast<KeyRanges::Softmax*>(scratch);
  out.sums = scratch + 2 * results_of(args, out);
  const bool is_narrow = out.queries * (args.heads / args.kv_heads) <= 4;
  with_kv_type(args.kv_dtype, [&]<class Kv>(Kv) {
    (is_narrow ? launch_decoding<Kv, 4> : launch_decoding<Kv, 8>)(stream, args, out);
  });
  launch("attention",
         {.stream = stream,
          .blocks = out.queries * args.heads,
          .blocks_y = static_cast<unsigned>(args.segments.size()),
          .threads = kThreads},
         combine_kernel, args, out);
}

}  // namespace kvcal::gpu
