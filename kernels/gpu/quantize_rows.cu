// FP8 codes of a Linear's input, with given scales or one computed for each row.
// Extremes and magnitudes of Linears' inputs.

#include <vector>

#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/kv.h"
#include "kernels/gpu/row_access.h"
#include "quant/scale.h"

namespace kvcal::gpu {
namespace {

/// Elements per thread: their codes are one access.
constexpr int kVector = 16;
/// Most threads for a row.
constexpr int kMostThreads = 1024;

/// Loads kCount elements as numbers, with 16-byte accesses where possible.
template <int kCount, class T>
__device__ inline void load_values(const T* x, float (&values)[kCount]) {
  constexpr int kPiece = kCount == 1 ? 1 : static_cast<int>(16 / sizeof(T));
  KVCAL_UNROLL
  for (int piece = 0; piece < kCount; piece += kPiece) {
    const auto loaded = *reinterpret_cast<const Pack<T, kPiece>*>(x + piece);
    KVCAL_UNROLL
    for (int i = 0; i < kPiece; ++i) values[piece + i] = to_float(loaded.values[i]);
  }
}

/// Codes of two numbers, the first in the low byte.
__device__ inline uint16_t encode_pair(float first, float second, fp8::Format format) {
  uint16_t codes = 0;
  const bool has_nan = first != first || second != second;
  if (!has_nan && encode_pair_by_chip(first, second, format, codes)) return codes;
  const unsigned high = fp8::encode(second, format);
  return static_cast<uint16_t>(fp8::encode(first, format) | high << 8);
}

/// Writes the codes of values / scale; returns how many finite values exceed the largest code.
template <int kCount>
__device__ inline unsigned store_codes(const float (&values)[kCount], float scale,
                                       const QuantizeRowsArgs& args, uint8_t* out) {
  const float largest = fp8::max_value(args.format);
  Pack<uint8_t, kCount> codes;
  unsigned saturated = 0;
  float scaled[kCount];
  KVCAL_UNROLL
  for (int i = 0; i < kCount; ++i) {
    scaled[i] = values[i] / scale;
    if (is_finite(values[i]) && magnitude_of(scaled[i]) > largest) ++saturated;
  }
  if constexpr (kCount == 1) {
    codes.values[0] = fp8::encode(scaled[0], args.format);
  } else {
    KVCAL_UNROLL
    for (int i = 0; i < kCount; i += 2) {
      const uint16_t pair = encode_pair(scaled[i], scaled[i + 1], args.format);
      codes.values[i] = static_cast<uint8_t>(pair & 0xffu);
      codes.values[i + 1] = static_cast<uint8_t>(pair >> 8);
    }
  }
  *reinterpret_cast<Pack<uint8_t, kCount>*>(out) = codes;
  return saturated;
}

/// Adds the count; all threads of a warp must call it.
__device__ inline void add_saturated(const QuantizeRowsArgs& args, unsigned saturated) {
  if (!args.saturated) return;
  const unsigned count = warp_count(saturated);
  if (lane() == 0 && count > 0) add_count(args.saturated, count);
}

/// Uses given scales. The last piece of a row may be shorter if it is the only row.
template <class T, int kCount>
__global__ void quantize_kernel(QuantizeRowsArgs args) {
  const T* x = static_cast<const T*>(args.x);
  const int64_t pieces_of_row = ceil_div(args.width, int64_t{kCount});
  unsigned saturated = 0;
  for_pieces(args.rows * pieces_of_row, [&](int64_t index) {
    const auto [row, piece] = place_of(index, pieces_of_row);
    const float scale = args.scales[args.scale_per_row ? row : 0];
    const int64_t begin = piece * kCount, at = row * args.width + begin;
    if (begin + kCount <= args.width) {
      float values[kCount];
      load_values<kCount>(x + at, values);
      saturated += store_codes<kCount>(values, scale, args, args.out + at);
    } else {
      for (int64_t i = at; i < args.width; ++i) {
        const float value[1] = {to_float(x[i])};
        saturated += store_codes<1>(value, scale, args, args.out + i);
      }
    }
  });
  add_saturated(args, saturated);
}

/// One block per row: finds its largest magnitude, then writes its codes. A thread's first values
/// stay in registers, the rest of a long row in the cache.
template <class T, int kCount>
__global__ void __launch_bounds__(kMostThreads) quantize_by_row_kernel(QuantizeRowsArgs args) {
  const T* x = static_cast<const T*>(args.x) + int64_t{blockIdx.x} * args.width;
  uint8_t* out = args.out + int64_t{blockIdx.x} * args.width;
  const int64_t mine = int64_t{threadIdx.x} * kCount, step = int64_t{blockDim.x} * kCount;
  float kept[kCount] = {}, values[kCount];
  if (mine < args.width) load_values<kCount>(x + mine, kept);
  ThreadAmax seen;
  KVCAL_UNROLL
  for (int i = 0; i < kCount; ++i) seen.see(kept[i]);
  for (int64_t at = mine + step; at < args.width; at += step) {
    load_values<kCount>(x + at, values);
    KVCAL_UNROLL
    for (int i = 0; i < kCount; ++i) seen.see(values[i]);
  }
  const float scale = scale_from(Amax{block_max(seen.amax)}, args.format).value;
  if (threadIdx.x == 0) args.row_scales[blockIdx.x] = scale;
  unsigned saturated = 0;
  if (mine < args.width) saturated += store_codes<kCount>(kept, scale, args, out + mine);
  for (int64_t at = mine + step; at < args.width; at += step) {
    load_values<kCount>(x + at, values);
    saturated += store_codes<kCount>(values, scale, args, out + at);
  }
  add_saturated(args, saturated);
}

}  // namespace

void GpuBackend::do_quantize_rows(const QuantizeRowsArgs& asked) {
  if (asked.rows == 0) return;
  QuantizeRowsArgs args = asked;
  if (args.scales && !args.scale_per_row) {  // rows follow each other: one long one
    args.width *= args.rows;
    args.rows = 1;
  }
  const bool by_vector = ((args.scales && args.rows == 1) || args.width % kVector == 0) &&
                         is_aligned(args.x, 16) && is_aligned(args.out, 16);
  const int64_t pieces = ceil_div(args.width, int64_t{by_vector ? kVector : 1});
  with_type(args.type, [&]<class T>(T) {
    if (args.scales)
      launch("quantize_rows", on_pieces(args.rows * pieces),
             by_vector ? quantize_kernel<T, kVector> : quantize_kernel<T, 1>, args);
    else
      launch("quantize_rows", row_launch(stream(), args.rows, pieces),
             by_vector ? quantize_by_row_kernel<T, kVector> : quantize_by_row_kernel<T, 1>, args);
  });
}

namespace {

constexpr int64_t kChunk = 32768;  ///< elements a block goes through, of one segment

/// Block: a chunk of one segment.
template <class T, int kCount>
__global__ void __launch_bounds__(kObservingThreads)
    observe_rows_kernel(ObserveRowsArgs args, const Segment* chunks) {
  const Segment& chunk = chunks[blockIdx.x];
  const T* x = static_cast<const T*>(args.x) + chunk.q_begin;
  KVCAL_SHARED(SharedBins, bins);
  clear_bins(bins);
  Observed seen;
  for (int64_t i = int64_t{threadIdx.x} * kCount; i < chunk.q_count;
       i += int64_t{kObservingThreads} * kCount) {
    const auto pack = *reinterpret_cast<const Pack<T, kCount>*>(x + i);
    KVCAL_UNROLL
    for (int j = 0; j < kCount; ++j)
      see(to_float(pack.values[j]), static_cast<unsigned>(i + j), seen, bins);
  }
  if (seen.first_nonfinite != 0xffffffffu)  // an element of the chunk: the row it stands in
    seen.first_nonfinite =
        static_cast<unsigned>((chunk.kv_count + seen.first_nonfinite) / args.width);
  __syncthreads();
  fold_seen(seen, bins, args.ranges + chunk.kv_begin, args.histogram);
}

}  // namespace

void GpuBackend::do_observe_rows(const ObserveRowsArgs& args) {
  clear_ranges(args.ranges, static_cast<int64_t>(args.segments.size()), stream());
  const std::vector<Segment> chunks = chunks_of(args.segments, args.width, kChunk);
  if (chunks.empty()) return;
  const Segment* on_chip = on_device(chunks);
  const Launch where{.stream = stream(),
                     .blocks = static_cast<int64_t>(chunks.size()),
                     .threads = kObservingThreads};
  with_type(args.type, [&]<class T>(T) {
    constexpr int kCount = static_cast<int>(16 / sizeof(T));
    const bool by_vector = args.width % kCount == 0 && is_aligned(args.x, 16);
    launch("observe_rows", where,
           by_vector ? observe_rows_kernel<T, kCount> : observe_rows_kernel<T, 1>, args, on_chip);
  });
}

}  // namespace kvcal::gpu
