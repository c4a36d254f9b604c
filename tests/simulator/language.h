#pragma once

#include <cmath>
#include <cstring>

#include "simulator/simulator.h"

// The words of GPU languages that kernels use, for the simulated device.

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (::kvcal::gpu::simulator::current().thread_index)
#define blockIdx (::kvcal::gpu::simulator::current().block_index)
#define blockDim (::kvcal::gpu::simulator::current().block_dim)
#define gridDim (::kvcal::gpu::simulator::current().grid_dim)

inline void __syncthreads() {
  ::kvcal::gpu::simulator::sync_threads();
}

// Blocks run one after the other and threads take turns, so plain arithmetic is atomic.
template <class T>
T atomicAdd(T* address, T value) {
  const T before = *address;
  *address = before + value;
  return before;
}
template <class T>
T atomicMax(T* address, T value) {
  const T before = *address;
  if (value > before) *address = value;
  return before;
}
template <class T>
T atomicMin(T* address, T value) {
  const T before = *address;
  if (value < before) *address = value;
  return before;
}

namespace kvcal::gpu::simulator {

enum Kind { kShuffle = 1, kSyncWarp, kMatrix };

template <class T>
T shuffle(T value, int source) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  const WarpWords& words = exchange(kShuffle, &word, 1);
  T result;
  std::memcpy(&result, words[source], 4);
  return result;
}

inline void sync_warp() {
  exchange(kSyncWarp, nullptr, 0);
}

}  // namespace kvcal::gpu::simulator
