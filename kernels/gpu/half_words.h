#pragma once

#include "kernels/gpu/device.h"

// 16-bit elements two to a word, as matrix instructions take them, and the arithmetic of softmax in
// the chip's own functions.
namespace kvcal::gpu {

#if defined(KVCAL_GPU_SIMULATED)

inline float half_number(F16 value) {
  static const std::vector<float> table = [] {
    std::vector<float> numbers;
    for (uint32_t bits = 0; bits < 65536; ++bits)
      numbers.push_back(to_float(F16{static_cast<uint16_t>(bits)}));
    return numbers;
  }();
  return table[value.bits];
}
inline float half_number(BF16 value) {
  return to_float(value);
}

#endif

/// The bits of an element of T, rounded to nearest even.
template <class T>
__device__ inline uint32_t half_bits(float value) {
#if KVCAL_HAS_WAVE_MATRIX && !defined(KVCAL_GPU_SIMULATED)
  if constexpr (std::is_same_v<T, F16>)
    return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
#endif
  return element_of<T>(value).bits;
}

/// Two elements of T, rounded to nearest even; the first in the low half.
template <class T>
__device__ inline uint32_t pair_of(float low, float high) {
#if KVCAL_HAS_WARP_MATRIX && !defined(KVCAL_GPU_SIMULATED)
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

/// 2^x within 2 ulp; 0 where that is subnormal.
__device__ inline float power_of_two(float x) {
#if KVCAL_HAS_WARP_MATRIX && !defined(KVCAL_GPU_SIMULATED)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(__AMDGCN__)
  float result;
  asm("v_exp_f32 %0, %1" : "=v"(result) : "v"(x));
  return result;
#else
  return exp2f(x);
#endif
}

/// 1 / x within 1 ulp.
__device__ inline float reciprocal(float x) {
#if KVCAL_HAS_WARP_MATRIX && !defined(KVCAL_GPU_SIMULATED)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(__AMDGCN__)
  return __builtin_amdgcn_rcpf(x);
#else
  return 1.0f / x;
#endif
}

/// Moves four bytes to the upper halves of 16-bit words.
__device__ inline void spread_bytes(uint32_t four, uint32_t& low, uint32_t& high) {
#if KVCAL_HAS_WARP_MATRIX && !defined(KVCAL_GPU_SIMULATED)
  low = __byte_perm(four, 0, 0x1404);
  high = __byte_perm(four, 0, 0x3424);
#else
  low = (four & 0xffu) << 8 | (four & 0xff00u) << 16;
  high = (four >> 16 & 0xffu) << 8 | (four & 0xff000000u);
#endif
}

/// FP8 codes in the upper halves of 16-bit words as F16, with the code's exponent bits: correct up
/// to a power of two. NaN stays NaN.
__device__ inline uint32_t halves_of_spread(uint32_t spread, fp8::Format format) {
  if (format == fp8::Format::kE5m2) return spread;
  const uint32_t halves = (spread & 0x80008000u) | (spread >> 1 & 0x3f803f80u);
  if (format == fp8::Format::kE4m3Fn)  // all ones: the carry sets the exponent's upper bit too
    return halves | (((halves & 0x7fff7fffu) + 0x00800080u) & 0x40004000u);
  // The codes of -0 are NaN: their sign, where the sum with the magnitude does not carry into it.
  const uint32_t nan = halves & ~((halves & 0x7fff7fffu) + 0x7fff7fffu) & 0x80008000u;
  return halves | (nan - (nan >> 6));
}
/// Four FP8 codes as F16, correct up to the power of two in code_power. NaN stays NaN.
__device__ inline void halves_of_codes(uint32_t four, fp8::Format format, uint32_t& low,
                                       uint32_t& high) {
  if (decodes_by_chip(format)) return decode_codes_by_chip(four, format, low, high);
  spread_bytes(four, low, high);
  low = halves_of_spread(low, format);
  high = halves_of_spread(high, format);
}
/// Factor from the results of halves_of_codes to the codes' values.
__device__ inline float code_power(fp8::Format format) {
  if (decodes_by_chip(format)) return 1.0f;
  return format == fp8::Format::kE4m3Fn ? 256.0f : format == fp8::Format::kE4m3Fnuz ? 128.0f : 1.0f;
}

}  // namespace kvcal::gpu
