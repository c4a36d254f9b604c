#pragma once

#include <cstdint>

#include "core/error.h"

namespace kvcal {

/// a * b for sizes that come from a file. Throws Error on overflow.
inline uint64_t checked_mul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) fail(a, " times ", b, " overflows 64 bits");
  return product;
}

/// a + b for sizes that come from a file. Throws Error on overflow.
inline uint64_t checked_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail(a, " plus ", b, " overflows 64 bits");
  return sum;
}

/// Smallest multiple of step that is at least value; neither is negative.
constexpr int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace kvcal
