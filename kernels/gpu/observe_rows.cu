// Extremes and magnitudes of Linears' inputs.
#include <vector>

#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/observed.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

constexpr int64_t kChunk = 32768;  ///< elements a block goes through, of one segment

/// Block: a chunk of one segment. chunks: "q" is a range of elements of x, "kv" the segment's
/// number and the elements of it before the chunk.
template <class T, int kCount>
__global__ void __launch_bounds__(kObservingThreads)
    observe_rows_kernel(ObserveRowsArgs args, const Segment* chunks) {
  const Segment& chunk = chunks[blockIdx.x];
  const T* x = static_cast<const T*>(args.x) + chunk.q_begin;
  KVCAL_SHARED(SharedBins, bins);
  clear_bins(bins);
  Seen seen;
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

std::vector<Segment> chunks_of(const ObserveRowsArgs& args) {
  std::vector<Segment> chunks;
  for (size_t s = 0; s < args.segments.size(); ++s) {
    const Segment& segment = args.segments[s];
    const int64_t count = segment.q_count * args.width;
    for (int64_t first = 0; first < count; first += kChunk)
      chunks.push_back({.q_begin = segment.q_begin * args.width + first,
                        .q_count = std::min(kChunk, count - first),
                        .kv_begin = static_cast<int64_t>(s),
                        .kv_count = first});
  }
  return chunks;
}

}  // namespace

void GpuBackend::do_observe_rows(const ObserveRowsArgs& args) {
  clear_ranges(args.ranges, static_cast<int64_t>(args.segments.size()), stream());
  const std::vector<Segment> chunks = chunks_of(args);
  if (chunks.empty()) return;
  const Segment* on_chip = on_device(chunks);
  const Launch where{.stream = stream(),
                     .blocks = static_cast<int64_t>(chunks.size()),
                     .threads = kObservingThreads};
  with_type(args.type, [&](auto element) {
    using T = decltype(element);
    constexpr int kCount = static_cast<int>(16 / sizeof(T));
    if (args.width % kCount == 0 && is_aligned(args.x, 16))
      launch("observe_rows", where, observe_rows_kernel<T, kCount>, args, on_chip);
    else
      launch("observe_rows", where, observe_rows_kernel<T, 1>, args, on_chip);
  });
}

}  // namespace kvcal::gpu
