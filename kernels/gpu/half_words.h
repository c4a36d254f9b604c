#pragma once

#include "kernels/gpu/device.h"

// What kernels with matrix instructions do in the chip's own functions: 16-bit elements two to a
// word, and the arithmetic of softmax.
namespace kvcal::gpu {

/// The bits of an element of T, rounded to nearest even.
template <class T>
__device__ inline uint32_t half_bits(float value) {
#if defined(__AMDGCN__)
  if constexpr (std::is_same_v<T, F16>)
    return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
#endif
  return element_of<T>(value).bits;
}

/// Two elements of T, rounded to nearest even; the first in the low half.
template <class T>
__device__ inline uint32_t pair_of(float low, float high) {
#if KVCAL_HAS_PTX
  uint32_t pair;
  if constexpr (std::is_same_v<T, F16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return half_bits<T>(low) | half_bits<T>(high) << 16;
#endif
}
/// What two floats that were rounded to this pair of bfloat16 are more, as a pair of it.
__device__ inline uint32_t remainders_of(uint32_t pair, float low, float high) {
  return pair_of<BF16>(low - float_of(pair << 16), high - float_of(pair & 0xffff0000u));
}

/// 2^x within 2 ulp; 0 where that is subnormal.
__device__ inline float power_of_two(float x) {
#if KVCAL_HAS_PTX
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(__AMDGCN__)
  // Functions that the compiler knows, for it adds the wait state that gfx940 and later need before
  // the result is used; to an instruction in an asm it adds none. Compilers without the newer
  // function make the same instruction of the older one.
#if __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#else
  return __builtin_exp2f(x);
#endif
#else
  return exp2f(x);
#endif
}

/// 1 / x within 1 ulp.
__device__ inline float reciprocal(float x) {
#if KVCAL_HAS_PTX
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(__AMDGCN__)
  return __builtin_amdgcn_rcpf(x);
#else
  return 1.0f / x;
#endif
}

}  // namespace kvcal::gpu
