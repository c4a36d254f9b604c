#pragma once

#include <cstdint>

/// Marks a function that GPU kernels also call; empty without a GPU compiler.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define KVCAL_HD __host__ __device__
#else
#define KVCAL_HD
#endif

namespace kvcal {

/// Bits of a float32, and the reverse. `std::bit_cast` would need a flag in device code.
KVCAL_HD constexpr uint32_t bits_of(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
KVCAL_HD constexpr float float_of(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

}  // namespace kvcal
