// Writes K and V into the cache: RoPE, extremes, histograms and codes in one pass.
// Dequantizes elements of a cache, and converts numbers to other types.
// What attention reads from a cache of a simulated format. A measurement, not a serving path: one
// thread a head, with the host's code.

#include "kernels/gpu/kv.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

constexpr int64_t kChunk = 256;  ///< tokens a block goes through, of one head

/// Marks a side that is not stored.
struct Nothing {};

struct SideArgs {
  CacheSide side;
  /// Heads of x to rotate begin at turned_begin of each head (an MLA key may rotate in part).
  Angles angles;
};
struct EnterArgs {
  SideArgs sides[2];
  const Segment* chunks = nullptr;  ///< rows, and as "kv" the segment's number and first token
  const int64_t* first_row = nullptr;
  int64_t tokens = 0;
};

// ---- storing ----

/// Stores kVector neighbours and counts the finite values beyond FP8's range.
template <class T, int kVector>
__device__ inline void store_vector(T* out, const float (&values)[kVector], float scale,
                                    unsigned& saturated) {
  Pack<T, kVector> stored;
  if constexpr (CodesOf<T>::kAre) {
    constexpr fp8::Format kFormat = CodesOf<T>::kFormat;
    float scaled[kVector];
    for (int i = 0; i < kVector; ++i) {
      scaled[i] = values[i] / scale;
      if (is_finite(values[i]) && magnitude_of(scaled[i]) > fp8::max_value(kFormat)) ++saturated;
    }
    for (int i = 0; i < kVector; i += 2) {
      uint16_t codes = 0;
      const float second = scaled[kVector == 1 ? 0 : i + 1];
      const bool has_nan = scaled[i] != scaled[i] || second != second;
      if (kVector > 1 && !has_nan && encode_pair_by_chip(scaled[i], second, kFormat, codes)) {
        stored.values[i] = T{static_cast<uint8_t>(codes & 0xffu)};
        stored.values[kVector == 1 ? 0 : i + 1] = T{static_cast<uint8_t>(codes >> 8)};
        continue;
      }
      stored.values[i] = fp8::encode<kFormat>(scaled[i]);
      if constexpr (kVector > 1) stored.values[i + 1] = fp8::encode<kFormat>(second);
    }
  } else {
    for (int i = 0; i < kVector; ++i) stored.values[i] = element_of<T>(values[i]);
  }
  *reinterpret_cast<Pack<T, kVector>*>(out) = stored;
}

// ---- observing ----

__global__ void clear_ranges_kernel(ObservedRange* ranges, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) ranges[i] = {kInfinity, -kInfinity, -1};
}

// ---- the pass ----

/// Block: one head of K or V, up to kChunk tokens of one segment; a warp takes one token at a time.
template <class T, bool kObserves, int kVector>
__global__ void __launch_bounds__(kObservingThreads) enter_cache_kernel(EnterArgs args) {
  const int64_t k_heads = args.sides[0].side.x.heads;
  const SideArgs& mine = args.sides[int64_t{blockIdx.y} < k_heads ? 0 : 1];
  const CacheSide& side = mine.side;
  const HeadsView& x = side.x;
  const int64_t head = int64_t{blockIdx.y} < k_heads ? blockIdx.y : blockIdx.y - k_heads;
  int64_t begin = int64_t{blockIdx.x} * kChunk, segment = 0, first_token = 0;
  int64_t count = smaller(kChunk, args.tokens - begin);
  if (args.chunks) {
    const Segment& chunk = args.chunks[blockIdx.x];
    begin = chunk.q_begin;
    count = chunk.q_count;
    segment = chunk.kv_begin;
    first_token = chunk.kv_count;
  }
  KVCAL_SHARED(SharedBins, bins);
  if constexpr (kObserves) clear_bins(bins);
  Observed seen;
  unsigned saturated = 0;
  const int64_t first_row = args.first_row ? *args.first_row : 0;
  float scale = 1.0f;
  if constexpr (CodesOf<T>::kAre) scale = side.scales[head];
  for (int64_t t = warp(); t < count; t += kObservingThreads / kWarp) {
    const int64_t row = begin + t;
    const float* values_of_head = x.data + row * x.row_stride + head * x.head_dim;
    const int64_t table_row =
        mine.angles.half > 0 ? mine.angles.positions[row] * mine.angles.half : 0;
    for (int64_t d = lane() * kVector; d < x.head_dim; d += kWarp * kVector) {
      float values[kVector];
      if constexpr (kVector > 1)
        turned_vector<kVector>(values_of_head, d, mine.angles, table_row, values);
      else
        values[0] = turned(values_of_head, d, mine.angles, table_row);
      if constexpr (kObserves)
        for (const float value : values)
          see(value, static_cast<unsigned>(first_token + t), seen, bins);
      if constexpr (!std::is_same_v<T, Nothing>)
        store_vector(
            static_cast<T*>(side.out) + ((first_row + row) * x.heads + head) * x.head_dim + d,
            values, scale, saturated);
    }
  }
  if constexpr (kObserves) {
    __syncthreads();
    fold_seen(seen, bins, side.ranges + segment * x.heads + head,
              side.histogram ? side.histogram + head * int64_t{kBins} : nullptr);
  }
  if (CodesOf<T>::kAre && side.saturated) {
    saturated = warp_count(saturated);
    if (lane() == 0 && saturated > 0) add_count(side.saturated + head, saturated);
  }
}

/// Whether four dimensions can be processed together.
bool takes_vectors(const SideArgs& args) {
  const CacheSide& side = args.side;
  if (side.x.heads == 0) return true;
  const auto stored = static_cast<size_t>(bytes_per_element(side.dtype));
  const Angles& angles = args.angles;
  const bool turns_whole = angles.interleaved ? angles.half % 2 == 0 : angles.half % 4 == 0;
  return side.x.head_dim % 4 == 0 && side.x.row_stride % 4 == 0 && is_aligned(side.x.data, 16) &&
         (!side.out || is_aligned(side.out, 4 * stored)) && turns_whole &&
         (angles.half == 0 || (is_aligned(angles.cos, 16) && is_aligned(angles.sin, 16)));
}

template <class T, bool kObserves>
void launch_pass(const EnterArgs& args, int64_t blocks, Stream& stream) {
  const auto heads = static_cast<unsigned>(args.sides[0].side.x.heads + args.sides[1].side.x.heads);
  const Launch where{
      .stream = stream, .blocks = blocks, .blocks_y = heads, .threads = kObservingThreads};
  const bool by_four = takes_vectors(args.sides[0]) && takes_vectors(args.sides[1]);
  launch("enter_cache", where,
         by_four ? enter_cache_kernel<T, kObserves, 4> : enter_cache_kernel<T, kObserves, 1>, args);
}

void run_pass(const EnterArgs& args, int64_t blocks, Stream& stream) {
  const CacheSide& first = args.sides[0].side;
  if (!first.out) return launch_pass<Nothing, true>(args, blocks, stream);
  with_kv_type(first.dtype, [&]<class T>(T) {
    (first.ranges ? launch_pass<T, true> : launch_pass<T, false>)(args, blocks, stream);
  });
}

/// Whether one launch can process both sides.
bool alike(const CacheSide& a, const CacheSide& b) {
  return (a.out == nullptr) == (b.out == nullptr) &&
         (a.ranges == nullptr) == (b.ranges == nullptr) && (!a.out || a.dtype == b.dtype);
}

}  // namespace

void clear_ranges(ObservedRange* ranges, int64_t count, Stream& stream) {
  if (count == 0) return;
  launch("clear_ranges",
         {.stream = stream,
          .blocks = ceil_div(count, kObservingThreads),
          .threads = kObservingThreads},
         clear_ranges_kernel, ranges, count);
}

void GpuBackend::do_enter_cache(const EnterCacheArgs& args) {
  const auto with_angles = [&](const CacheSide& side) {
    const bool turns = args.rope.x.data == side.x.data && side.x.data != nullptr;
    return SideArgs{side, turns ? angles_of(args.rope) : Angles{}};
  };
  EnterArgs pass{.sides = {with_angles(args.k), with_angles(args.v)},
                 .first_row = args.first_row,
                 .tokens = args.k.x.tokens};
  int64_t blocks = ceil_div(pass.tokens, kChunk);
  if (args.k.ranges || args.v.ranges) {
    const std::vector<Segment> chunks = chunks_of(args.segments, 1, kChunk);
    for (const CacheSide* side : {&args.k, &args.v})
      if (side->ranges) {
        const int64_t count = static_cast<int64_t>(args.segments.size()) * side->x.heads;
        clear_ranges(side->ranges, count, stream());
      }
    // Rows outside the segments are stored too, by a pass over all rows.
    int64_t rows = 0;
    for (const Segment& chunk : chunks) rows += chunk.q_count;
    if (rows == pass.tokens || (!args.k.out && !args.v.out)) {
      blocks = static_cast<int64_t>(chunks.size());
      if (blocks > 0) pass.chunks = on_device(chunks);
    } else {
      EnterCacheArgs observe = args, store = args;
      observe.k.out = observe.v.out = nullptr;
      store.k.ranges = store.v.ranges = nullptr;
      do_enter_cache(observe);
      return do_enter_cache(store);
    }
  }
  if (blocks == 0) return;
  const bool has_k = args.k.out || args.k.ranges, has_v = args.v.out || args.v.ranges;
  if (has_k && has_v && alike(args.k, args.v)) return run_pass(pass, blocks, stream());
  for (const int side : {0, 1}) {
    if (!(side == 0 ? has_k : has_v)) continue;
    EnterArgs one = pass;
    one.sides[0] = pass.sides[side];
    one.sides[1] = {};
    run_pass(one, blocks, stream());
  }
}

void GpuBackend::do_observe_kv(const ObserveKvArgs& args) {
  do_enter_cache({.k = {.x = args.x, .ranges = args.ranges, .histogram = args.histogram},
                  .segments = args.segments});
}

void GpuBackend::do_store_kv(const StoreKvArgs& args) {
  do_enter_cache({.k = {.x = args.x,
                        .dtype = args.dtype,
                        .scales = args.scales,
                        .out = args.out,
                        .saturated = args.saturated}});
}

namespace {

constexpr unsigned kThreads = 256;

struct LoadArgs {
  LoadKvArgs args;
  int64_t count = 0;
};

template <class From, class To, int kVector>
__global__ void __launch_bounds__(kThreads) load_kv_kernel(LoadArgs load) {
  const LoadKvArgs& args = load.args;
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (i >= load.count) return;
  float scale = 1.0f;
  if constexpr (sizeof(From) == 1) scale = args.scales[i / args.head_dim % args.heads];
  const auto from =
      *reinterpret_cast<const Pack<From, kVector>*>(static_cast<const From*>(args.x) + i);
  Pack<To, kVector> to;
  for (int n = 0; n < kVector; ++n)
    to.values[n] = element_of<To>(kv_to_float(from.values[n], scale));
  *reinterpret_cast<Pack<To, kVector>*>(static_cast<To*>(args.out) + i) = to;
}

template <class From, class To>
void launch_load(const LoadArgs& load, Stream& stream) {
  const bool by_four = load.args.head_dim % 4 == 0 && is_aligned(load.args.x, 4 * sizeof(From)) &&
                       is_aligned(load.args.out, 4 * sizeof(To));
  const int64_t threads = by_four ? load.count / 4 : load.count;
  launch("load_kv", {.stream = stream, .blocks = ceil_div(threads, kThreads), .threads = kThreads},
         by_four ? load_kv_kernel<From, To, 4> : load_kv_kernel<From, To, 1>, load);
}

}  // namespace

void GpuBackend::do_load_kv(const LoadKvArgs& args) {
  const LoadArgs load{args, args.rows * args.heads * args.head_dim};
  with_kv_type(args.dtype, [&](auto from) {
    with_type(args.out_type,
              [&](auto to) { launch_load<decltype(from), decltype(to)>(load, stream()); });
  });
}

namespace {

__global__ void simulate_cache_kernel(SimulateCacheArgs args) {
  for_pieces(args.x.tokens * args.x.heads, [&](int64_t index) {
    const Place head = place_of(index, args.x.heads);  // its token, and which head it is
    const CachedHead own = args.head(head.row, head.piece);
    if (args.saturated)
      if (const int64_t clipped = count_clipped(args.format, own); clipped > 0)
        add_count(args.saturated + head.piece, clipped);
    round_trip(args.format, own);
  });
}

}  // namespace

void GpuBackend::do_simulate_cache(const SimulateCacheArgs& args) {
  launch("simulate_cache", on_pieces(args.x.tokens * args.x.heads), simulate_cache_kernel, args);
}

namespace {

/// Rotates rows of this block's tokens; each thread takes one pair at a time.
__global__ void __launch_bounds__(kThreads) rope_kernel(HeadsView x, Angles angles, int rows) {
  const int64_t begin = int64_t{blockIdx.x} * rows;
  const auto half = static_cast<int>(angles.half), heads = static_cast<int>(x.heads);
  const int count = static_cast<int>(smaller<int64_t>(rows, x.tokens - begin)) * heads * half;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int pair = i % half, head = i / half % heads;
    const int64_t token = begin + i / half / heads;
    float* values = x.data + token * x.row_stride + head * x.head_dim;
    float& first = angles.interleaved ? values[2 * pair] : values[pair];
    float& second = angles.interleaved ? values[2 * pair + 1] : values[pair + half];
    const int64_t at = angles.positions[token] * angles.half + pair;
    const float a = first, b = second, cosine = angles.cos[at], sine = angles.sin[at];
    first = turned_first(a, b, cosine, sine);
    second = turned_second(a, b, cosine, sine);
  }
}

}  // namespace

void GpuBackend::do_rope(const RopeArgs& args) {
  if (args.rotary_dim == 0) return;
  // About eight pairs per thread.
  const int64_t pairs = args.x.heads * (args.rotary_dim / 2);
  const int64_t rows = std::max<int64_t>(1, 8 * kThreads / pairs);
  launch("rope", {.stream = stream(), .blocks = ceil_div(args.x.tokens, rows), .threads = kThreads},
         rope_kernel, args.x, angles_of(args), static_cast<int>(rows));
}

}  // namespace kvcal::gpu
