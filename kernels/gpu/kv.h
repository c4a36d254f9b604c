// Shared code of the observing kernels: a block sees values of one range and one histogram.

#pragma once

#include "kernels/gpu/device.h"
#include "quant/observations.h"

namespace kvcal::gpu {

constexpr unsigned kObservingThreads = 256;  ///< of a block
constexpr int kBins = MagnitudeHistogram::kBins;
/// Copies of a histogram in shared memory: neighbouring lanes often hit the same bin.
constexpr int kBinCopies = 8;

/// Observations of one thread.
struct Observed {
  float min = kInfinity, max = -kInfinity;
  unsigned first_nonfinite = 0xffffffffu;
};
struct SharedBins {
  unsigned counts[kBins * kBinCopies];
};

__device__ inline void see(float value, unsigned token, Observed& seen, SharedBins& bins) {
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
__device__ inline void fold_seen(const Observed& seen, const SharedBins& bins, ObservedRange* range,
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

/// RopeArgs without the heads.
struct Angles {
  const int32_t* positions = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t half = 0;  ///< pairs; 0: no rotation
  bool interleaved = false;
};
KVCAL_HD inline Angles angles_of(const RopeArgs& args) {
  return {args.positions, args.cos, args.sin, args.rotary_dim / 2, args.interleaved};
}

/// The two rotated numbers of a pair. Products are rounded before they are added, here and
/// everywhere that K is rotated, so that one pass gives the bytes of two.
__device__ inline float turned_first(float x, float y, float cosine, float sine) {
  return x * cosine - y * sine;
}
__device__ inline float turned_second(float x, float y, float cosine, float sine) {
  return y * cosine + x * sine;
}

/// Dimension d of a head after rotation.
__device__ inline float turned(const float* x, int64_t d, const Angles& angles, int64_t table_row) {
  if (d >= 2 * angles.half) return x[d];
  const bool is_second = angles.interleaved ? d % 2 == 1 : d >= angles.half;
  const int64_t pair = angles.interleaved ? d / 2 : is_second ? d - angles.half : d;
  const float first = angles.interleaved ? x[2 * pair] : x[pair];
  const float second = angles.interleaved ? x[2 * pair + 1] : x[pair + angles.half];
  const float cosine = angles.cos[table_row + pair], sine = angles.sin[table_row + pair];
  return is_second ? turned_second(first, second, cosine, sine)
                   : turned_first(first, second, cosine, sine);
}

/// kVector neighbouring dimensions after rotation, with whole accesses.
template <int kVector>
__device__ inline void turned_vector(const float* x, int64_t d, const Angles& angles,
                                     int64_t table_row, float (&values)[kVector]) {
  using Vector = Pack<float, kVector>;
  const auto load = [](const float* from) { return *reinterpret_cast<const Vector*>(from); };
  const Vector own = load(x + d);
  if (d >= 2 * angles.half) {
    for (int i = 0; i < kVector; ++i) values[i] = own.values[i];
    return;
  }
  if (angles.interleaved) {
    for (int i = 0; i < kVector; i += 2) {
      const int64_t pair = table_row + d / 2 + i / 2;
      const float cosine = angles.cos[pair], sine = angles.sin[pair];
      values[i] = turned_first(own.values[i], own.values[i + 1], cosine, sine);
      values[i + 1] = turned_second(own.values[i], own.values[i + 1], cosine, sine);
    }
    return;
  }
  const bool is_second = d >= angles.half;
  const int64_t pair = is_second ? d - angles.half : d;
  const Vector other = load(x + (is_second ? d - angles.half : d + angles.half));
  const Vector cosines = load(angles.cos + table_row + pair);
  const Vector sines = load(angles.sin + table_row + pair);
  for (int i = 0; i < kVector; ++i)
    values[i] =
        is_second
            ? turned_second(other.values[i], own.values[i], cosines.values[i], sines.values[i])
            : turned_first(own.values[i], other.values[i], cosines.values[i], sines.values[i]);
}

}  // namespace kvcal::gpu
