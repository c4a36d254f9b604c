#pragma once

#include "kernels/gpu/device.h"
#include "quant/magnitude_histogram.h"

// Shared code of the observing kernels: a block sees values of one range and one histogram.
namespace kvcal::gpu {

constexpr unsigned kObservingThreads = 256;  ///< of a block
constexpr int kBins = MagnitudeHistogram::kBins;
/// Copies of a histogram in shared memory: neighbouring lanes often hit the same bin.
constexpr int kBinCopies = 8;

/// Observations of one thread.
struct Seen {
  float min = kInfinity, max = -kInfinity;
  unsigned first_nonfinite = 0xffffffffu;
};
struct SharedBins {
  unsigned counts[kBins * kBinCopies];
};

__device__ inline void see(float value, unsigned token, Seen& seen, SharedBins& bins) {
  if (!is_finite(value)) {
    seen.first_nonfinite = smaller(seen.first_nonfinite, token);
    return;
  }
  value += 0.0f;  // -0 becomes +0, so that equal extremes have equal bytes
  seen.min = smaller(seen.min, value);
  seen.max = larger(seen.max, value);
  atomicAdd(&bins.counts[MagnitudeHistogram::bin_of(value) * kBinCopies + lane() % kBinCopies], 1u);
}

__device__ inline void clear_bins(SharedBins& bins) {
  for (int i = static_cast<int>(threadIdx.x); i < kBins * kBinCopies; i += kObservingThreads)
    bins.counts[i] = 0;
  __syncthreads();
}

/// Adds a block's observations to its range and, if any, its histogram.
__device__ inline void fold_seen(const Seen& seen, const SharedBins& bins, ObservedRange* range,
                                 uint64_t* histogram) {
  const float min = -warp_max(-seen.min), max = warp_max(seen.max);
  unsigned first = seen.first_nonfinite;
  for (int mask = kWarp / 2; mask > 0; mask /= 2) first = smaller(first, shuffle_xor(first, mask));
  if (lane() == 0) {
    if (min <= max) {
      fold_min(&range->min, min);
      fold_max(&range->max, max);
    }
    if (first != 0xffffffffu)
      atomicMin(reinterpret_cast<unsigned*>(&range->first_nonfinite), first);  // -1 is the largest
  }
  __syncthreads();
  if (!histogram) return;
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kObservingThreads) {
    unsigned count = 0;
    for (int copy = 0; copy < kBinCopies; ++copy) count += bins.counts[bin * kBinCopies + copy];
    if (count > 0) add_count(histogram + bin, count);
  }
}

/// Resets ranges to empty, [count].
void clear_ranges(ObservedRange* ranges, int64_t count, Stream& stream);

}  // namespace kvcal::gpu
