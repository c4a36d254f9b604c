#pragma once

#include "backend/backend.h"
#include "kernels/gpu/kv_number.h"
#include "kernels/gpu/portability.h"
#include "kernels/with_type.h"
#include "quant/half.h"

// Shared code of kernels: elements of every type, sums over lanes in a fixed order, and slots into
// which blocks fold their extremes. All of it gives the same bytes in any order of threads.
namespace kvcal::gpu {

constexpr float kInfinity = __builtin_inff();

KVCAL_HD constexpr int64_t ceil_div(int64_t count, int64_t of) {
  return (count + of - 1) / of;
}
template <class T>
KVCAL_HD constexpr T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
KVCAL_HD constexpr T larger(T a, T b) {
  return a < b ? b : a;
}
KVCAL_HD inline bool is_finite(float value) {
  return (bits_of(value) & 0x7f800000u) != 0x7f800000u;
}
KVCAL_HD inline float magnitude_of(float value) {
  return float_of(bits_of(value) & 0x7fffffffu);
}

/// Whether an access of so many bytes may begin at data.
inline bool is_aligned(const void* data, size_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

// ---- elements ----

using kvcal::to_float;

/// Dequantizes an element of a KV cache.
KVCAL_HD inline float kv_to_float(float value, float) {
  return value;
}
KVCAL_HD inline float kv_to_float(F16 value, float) {
  return to_float(value);
}
KVCAL_HD inline float kv_to_float(BF16 value, float) {
  return to_float(value);
}
template <fp8::Format kFormat>
KVCAL_HD inline float kv_to_float(fp8::Code<kFormat> code, float scale) {
  return scale * fp8::decode(code);
}

/// kCount elements at an address aligned to kCount * sizeof(T) bytes, loaded in one access.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

/// The numbers of the KV elements in a word, by the chip's own instructions where it has them.
__device__ inline void numbers_of_word(uint32_t word, float (&numbers)[1], float) {
  numbers[0] = float_of(word);
}
__device__ inline void numbers_of_word(uint32_t word, float (&numbers)[2], BF16) {
  numbers[0] = float_of(word << 16);
  numbers[1] = float_of(word & 0xffff0000u);
}
__device__ inline void numbers_of_word(uint32_t word, float (&numbers)[2], F16) {
  floats_of_halves(word, numbers[0], numbers[1]);
}
template <fp8::Format kFormat>
__device__ inline void numbers_of_word(uint32_t word, float (&numbers)[4], fp8::Code<kFormat>) {
  if (decodes_by_chip(kFormat)) {
    uint32_t low, high;
    decode_codes_by_chip(word, kFormat, low, high);
    floats_of_halves(low, numbers[0], numbers[1]);
    return floats_of_halves(high, numbers[2], numbers[3]);
  }
  KVCAL_UNROLL
  for (int i = 0; i < 4; ++i)
    numbers[i] = number_of(fp8::Code<kFormat>{static_cast<uint8_t>(word >> (8 * i))});
}

// ---- sums and extremes over lanes ----

__device__ inline float warp_sum(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = larger(value, shuffle_xor(value, mask));
  return value;
}
__device__ inline unsigned warp_count(unsigned value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

struct WarpFloats {
  float values[32];
};
/// Sum over a block's threads, in every thread. May be called again at once.
__device__ inline float block_sum(float value) {
  KVCAL_SHARED(WarpFloats, sums);
  const float mine = warp_sum(value);
  if (lane() == 0) sums.values[warp()] = mine;
  __syncthreads();
  float sum = lane() < static_cast<int>(blockDim.x) / kWarp ? sums.values[lane()] : 0.0f;
  sum = warp_sum(sum);
  __syncthreads();
  return sum;
}
/// Maximum over a block's threads, in every thread.
__device__ inline float block_max(float value) {
  KVCAL_SHARED(WarpFloats, maxima);
  const float mine = warp_max(value);
  if (lane() == 0) maxima.values[warp()] = mine;
  __syncthreads();
  float all = lane() < static_cast<int>(blockDim.x) / kWarp ? maxima.values[lane()] : -kInfinity;
  all = warp_max(all);
  __syncthreads();
  return all;
}

// ---- slots that many blocks fold into ----

/// *slot = max(*slot, value), for values and slots that are not negative.
__device__ inline void fold_amax(float* slot, float value) {
  atomicMax(reinterpret_cast<unsigned*>(slot), bits_of(value));
}
/// *slot = min(*slot, value), of any sign; no NaN, no -0.
__device__ inline void fold_min(float* slot, float value) {
  if (value >= 0.0f)
    atomicMin(reinterpret_cast<int*>(slot), static_cast<int>(bits_of(value)));
  else
    atomicMax(reinterpret_cast<unsigned*>(slot), bits_of(value));
}
__device__ inline void fold_max(float* slot, float value) {
  if (value >= 0.0f)
    atomicMax(reinterpret_cast<int*>(slot), static_cast<int>(bits_of(value)));
  else
    atomicMin(reinterpret_cast<unsigned*>(slot), bits_of(value));
}
__device__ inline void add_count(uint64_t* slot, uint64_t count) {
  atomicAdd(reinterpret_cast<unsigned long long*>(slot), static_cast<unsigned long long>(count));
}

/// Magnitudes that one thread wrote.
struct ThreadAmax {
  float amax = 0.0f;
  unsigned nonfinite = 0;
  KVCAL_HD void see(float value) {
    if (is_finite(value))
      amax = larger(amax, magnitude_of(value));
    else
      ++nonfinite;
  }
};
/// Folds the observations of the block's threads into the slot, if any. All threads must call it.
__device__ inline void fold_seen(const AmaxSlot& slot, const ThreadAmax& seen) {
  if (!slot.amax) return;
  const float amax = warp_max(seen.amax);
  const unsigned nonfinite = warp_count(seen.nonfinite);
  if (lane() != 0) return;
  if (amax > 0.0f) fold_amax(slot.amax, amax);
  if (nonfinite > 0) add_count(slot.nonfinite, nonfinite);
}

}  // namespace kvcal::gpu
