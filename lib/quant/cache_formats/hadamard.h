// Rotations of heads: random signs and a Hadamard matrix.
#pragma once

#include <cmath>
#include <cstdint>

#include "quant/host_device.h"

namespace kvcal::cache_formats {

inline constexpr int64_t kMostSigns = 512;
/// Bit i % 64 of word i / 64 is 1 where sign i is -1. torch draws signs with the Mersenne Twister;
/// those of a shorter head are the first of a longer one's.
struct Signs {
  uint64_t words[kMostSigns / 64];
};

KVCAL_HD constexpr bool is_power_of_two(int64_t count) {
  return (count & (count - 1)) == 0;
}

/// Multiplies x [size], a power of two, by the Hadamard matrix without its norm. factor: of the
/// results of each step, of which there are log2(size).
KVCAL_HD constexpr void transform(float* x, int64_t size, float factor = 1.0f) {
  for (int64_t half = 1; half < size; half *= 2)
    for (int64_t first = 0; first < size; first += 2 * half)
      for (int64_t i = first; i < first + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = (a + b) * factor;
        x[i + half] = (a - b) * factor;
      }
}

KVCAL_HD constexpr void flip_signs(float* x, int64_t size, const Signs& signs) {
  for (int64_t i = 0; i < size; ++i)
    if ((signs.words[i / 64] >> (i % 64) & 1u) != 0) x[i] = -x[i];
}

KVCAL_HD constexpr void multiply(float* x, int64_t size, float factor) {
  for (int64_t i = 0; i < size; ++i) x[i] = x[i] * factor;
}

/// The norm of the Hadamard matrix in float32: 1 / √size.
KVCAL_HD inline float norm_of(int64_t size) {
  return static_cast<float>(1.0 / ::sqrt(static_cast<double>(size)));
}

/// Sum of squares, in double: engines leave the order open in which they add.
KVCAL_HD constexpr double squares_of(const float* x, int64_t size) {
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace kvcal::cache_formats
