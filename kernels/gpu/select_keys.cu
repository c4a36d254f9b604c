#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"

// Selection of keys for sparse attention. One kernel scores the keys of some rows in float32, four
// by four products a thread; a second finds the topk-th largest score of each row by its digits,
// from the highest on, and sets the bits of the keys.
namespace kvcal::gpu {
namespace {

constexpr int kThreads = 256, kSide = 16;  ///< threads stand in a square
constexpr int kRows = 64, kKeys = 64, kEach = kRows / kSide;
constexpr int kDims = 32;             ///< of head_dim at a time
constexpr int64_t kScoredRows = 256;  ///< whose scores lie in memory together
constexpr int kDigits = 256;
static_assert(kDigits == kThreads && kRows == kKeys);

/// Consecutive queries of a segment.
struct SelectingRows {
  Segment segment;
  int64_t first = 0, count = 0;  ///< within the segment
  int64_t block = 1;             ///< keys that a row of k stands for
  float* scores = nullptr;       ///< [count, all_choices()]; null: each query reads all its keys

  KVCAL_HD int64_t q_row(int64_t row) const { return segment.q_begin + first + row; }
  /// Keys that the query of a row sees.
  KVCAL_HD int64_t keys(int64_t row) const {
    return segment.kv_count - segment.q_count + first + row + 1;
  }
  /// Rows of k among which it chooses.
  KVCAL_HD int64_t choices(int64_t row) const { return keys(row) / block; }
  KVCAL_HD int64_t all_choices() const { return segment.kv_count / block; }
};

struct ScoreTiles {
  float q[kRows][kDims + 1], k[kKeys][kDims + 1];
};

/// One thread's share of a tile of scores.
class ScoreTile {
 public:
  __device__ ScoreTile(const SelectKeysArgs& args, const SelectingRows& rows, ScoreTiles& tiles)
      : args_(args),
        rows_(rows),
        tiles_(tiles),
        x_(static_cast<int>(threadIdx.x) % kSide),
        y_(static_cast<int>(threadIdx.x) / kSide),
        first_key_(int64_t{blockIdx.x} * kKeys),
        first_row_(int64_t{blockIdx.y} * kRows) {}

  __device__ void run() {
    const int64_t last = smaller<int64_t>(first_row_ + kRows, rows_.count) - 1;
    if (first_key_ >= rows_.choices(last)) return;
    for (int64_t head = 0; head < args_.heads; ++head) add_head(head);
    KVCAL_UNROLL
    for (int i = 0; i < kEach; ++i) {
      KVCAL_UNROLL
      for (int j = 0; j < kEach; ++j) {
        const int64_t row = row_of(i), key = first_key_ + x_ + j * kSide;
        if (row < rows_.count && key < rows_.all_choices())
          rows_.scores[row * rows_.all_choices() + key] = scores_[i][j];
      }
    }
  }

 private:
  __device__ int64_t row_of(int i) const { return first_row_ + y_ + i * kSide; }

  __device__ void add_head(int64_t head) {
    float sums[kEach][kEach] = {};
    for (int64_t begin = 0; begin < args_.head_dim; begin += kDims) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kRows * kDims; i += kThreads) {
        tiles_.q[i / kDims][i % kDims] = query(first_row_ + i / kDims, head, begin + i % kDims);
        tiles_.k[i / kDims][i % kDims] = key(first_key_ + i / kDims, begin + i % kDims);
      }
      __syncthreads();
      for (int d = 0; d < kDims; ++d) {
        KVCAL_UNROLL
        for (int i = 0; i < kEach; ++i) {
          KVCAL_UNROLL
          for (int j = 0; j < kEach; ++j)
            sums[i][j] = fmaf(tiles_.q[y_ + i * kSide][d], tiles_.k[x_ + j * kSide][d], sums[i][j]);
        }
      }
    }
    KVCAL_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (row_of(i) >= rows_.count) continue;
      const float weight =
          args_.weights ? args_.weights[rows_.q_row(row_of(i)) * args_.heads + head] : 1.0f;
      KVCAL_UNROLL
      for (int j = 0; j < kEach; ++j)
        scores_[i][j] = fmaf(weight, larger(sums[i][j], 0.0f), scores_[i][j]);
    }
  }

  __device__ float query(int64_t row, int64_t head, int64_t d) const {
    if (row >= rows_.count || d >= args_.head_dim) return 0.0f;
    return args_.q[(rows_.q_row(row) * args_.heads + head) * args_.head_dim + d];
  }
  __device__ float key(int64_t key, int64_t d) const {
    if (key >= rows_.all_choices() || d >= args_.head_dim) return 0.0f;
    return args_.k[(rows_.segment.kv_begin + key) * args_.head_dim + d];
  }

  const SelectKeysArgs& args_;
  const SelectingRows& rows_;
  ScoreTiles& tiles_;
  const int x_, y_;
  const int64_t first_key_, first_row_;
  float scores_[kEach][kEach] = {};
};

__global__ __launch_bounds__(kThreads) void score_keys_kernel(SelectKeysArgs args,
                                                              SelectingRows rows) {
  KVCAL_SHARED(ScoreTiles, tiles);
  ScoreTile(args, rows, tiles).run();
}

struct SelectShared {
  unsigned counts[kDigits];
  unsigned digit, wanted;
};

/// One row's selection, by a block.
class SelectRow {
 public:
  __device__ SelectRow(const SelectKeysArgs& args, const SelectingRows& rows, SelectShared& shared)
      : args_(args),
        shared_(shared),
        keys_(rows.keys(blockIdx.x)),
        choices_(rows.choices(blockIdx.x)),
        scores_(rows.scores + blockIdx.x * rows.all_choices()),
        out_(args.out + rows.q_row(blockIdx.x) * args.row_words) {}

  __device__ void run() {
    if (choices_ <= args_.topk) {
      for (int64_t word = threadIdx.x; word < args_.row_words; word += kThreads)
        out_[word] = seen_bits(word);
      return;
    }
    wanted_ = static_cast<unsigned>(args_.topk);
    for (int shift = 24; shift >= 0; shift -= 8) find_digit(shift);
    if (args_.block == 1)
      write();
    else
      write_blocks();
  }

 private:
  /// Bits of the keys of a word that the query sees.
  __device__ uint32_t seen_bits(int64_t word) const {
    const int64_t left = keys_ - word * 32;
    return left >= 32 ? 0xffffffffu : left <= 0 ? 0u : (1u << left) - 1;
  }
  __device__ uint32_t order(int64_t key) const { return order_of_score(scores_[key]); }

  /// Adds the next digit to prefix_: of the scores that begin with it, wanted_ are selected.
  __device__ void find_digit(int shift) {
    const uint32_t known = shift == 24 ? 0u : 0xffffffffu << (shift + 8);
    shared_.counts[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t key = threadIdx.x; key < choices_; key += kThreads) {
      const uint32_t score = order(key);
      if ((score & known) == prefix_) atomicAdd(&shared_.counts[score >> shift & 255u], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned digit = kDigits - 1, wanted = wanted_;
      while (shared_.counts[digit] < wanted) wanted -= shared_.counts[digit--];
      shared_.digit = digit;
      shared_.wanted = wanted;
    }
    __syncthreads();
    prefix_ |= shared_.digit << shift;
    wanted_ = shared_.wanted;
    __syncthreads();
  }

  /// Selects larger scores than prefix_, and the first wanted_ of the equal ones. Each thread
  /// writes a range of words.
  __device__ void write() {
    const int64_t each = ceil_div(args_.row_words, kThreads);
    const int64_t begin = smaller(each * threadIdx.x, args_.row_words);
    const int64_t end = smaller(begin + each, args_.row_words);
    unsigned before = equal_before(begin * 32, smaller(end * 32, keys_));
    for (int64_t word = begin; word < end; ++word) {
      uint32_t bits = 0;
      for (int64_t key = word * 32; key < smaller(word * 32 + 32, keys_); ++key) {
        const uint32_t score = order(key);
        if (score > prefix_ || (score == prefix_ && before++ < wanted_)) bits |= 1u << (key % 32);
      }
      out_[word] = bits;
    }
  }

  /// Choices before begin with prefix_ for a score, where each thread has its own range.
  __device__ unsigned equal_before(int64_t begin, int64_t end) {
    unsigned equal = 0;
    for (int64_t key = begin; key < end; ++key) equal += order(key) == prefix_ ? 1 : 0;
    shared_.counts[threadIdx.x] = equal;
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned before = 0;
      for (unsigned& count : shared_.counts) {
        const unsigned here = count;
        count = before;
        before += here;
      }
    }
    __syncthreads();
    return shared_.counts[threadIdx.x];
  }

  /// As write, where a score is that of a block. Each thread adds the bits of a range of blocks.
  __device__ void write_blocks() {
    for (int64_t word = threadIdx.x; word < args_.row_words; word += kThreads) out_[word] = 0;
    const int64_t each = ceil_div(choices_, kThreads);
    const int64_t begin = smaller(each * threadIdx.x, choices_);
    const int64_t end = smaller(begin + each, choices_);
    unsigned before = equal_before(begin, end);  // and waits until all words are cleared
    for (int64_t choice = begin; choice < end; ++choice) {
      const uint32_t score = order(choice);
      if (score > prefix_ || (score == prefix_ && before++ < wanted_))
        add_keys(choice * args_.block, (choice + 1) * args_.block);
    }
    if (threadIdx.x == 0) add_keys(choices_ * args_.block, keys_);
  }
  __device__ void add_keys(int64_t begin, int64_t end) {
    for (int64_t key = begin; key < end; ++key) atomicAdd(&out_[key / 32], 1u << (key % 32));
  }

  const SelectKeysArgs& args_;
  SelectShared& shared_;
  const int64_t keys_, choices_;
  const float* scores_;  ///< [choices_]
  uint32_t* out_;
  uint32_t prefix_ = 0;
  unsigned wanted_ = 0;
};

__global__ __launch_bounds__(kThreads) void select_keys_kernel(SelectKeysArgs args,
                                                               SelectingRows rows) {
  KVCAL_SHARED(SelectShared, shared);
  SelectRow(args, rows, shared).run();
}

}  // namespace

uint64_t GpuBackend::selection_bytes_per_key() const {
  return kScoredRows * sizeof(float);
}

void GpuBackend::do_select_keys(const SelectKeysArgs& args) {
  const auto select = [&](const SelectingRows& rows) {
    launch("select_keys", {.stream = stream(), .blocks = rows.count, .threads = kThreads},
           select_keys_kernel, args, rows);
  };
  for (const Segment& segment : args.segments) {
    const int64_t choices = segment.kv_count / args.block;
    if (choices <= args.topk) {
      select({.segment = segment, .first = 0, .count = segment.q_count, .block = args.block});
      continue;
    }
    const Buffer scores = allocate(
        static_cast<size_t>(smaller(kScoredRows, segment.q_count) * choices) * sizeof(float));
    for (int64_t first = 0; first < segment.q_count; first += kScoredRows) {
      const SelectingRows rows{.segment = segment,
                               .first = first,
                               .count = smaller(kScoredRows, segment.q_count - first),
                               .block = args.block,
                               .scores = scores.as<float>()};
      if (rows.choices(rows.count - 1) > 0)
        launch("score_keys",
               {.stream = stream(),
                .blocks = ceil_div(rows.choices(rows.count - 1), kKeys),
                .blocks_y = static_cast<unsigned>(ceil_div(rows.count, kRows)),
                .threads = kThreads},
               score_keys_kernel, args, rows);
      select(rows);
    }
  }
}

}  // namespace kvcal::gpu
