#pragma once

#include <cstdint>

#include "quant/host_device.h"

/// Inlined into callers for other instruction sets, so that it is compiled for theirs.
#define KVCAL_INLINE [[gnu::always_inline]] inline

/// Logarithms and powers in double from additions, multiplications and one division. They give the
/// same bits on every machine and on GPUs, which the C library does not promise, and compilers
/// vectorize loops over them.
namespace kvcal {

/// a where is_a, else b, as arithmetic: with a conditional on floating-point values GCC would not
/// vectorize the loop.
template <class T>
KVCAL_INLINE KVCAL_HD T choose(bool is_a, T a, T b) {
  const T mask = T{0} - static_cast<T>(is_a);
  return (a & mask) | (b & ~mask);
}

KVCAL_INLINE KVCAL_HD double chosen(bool is_a, double a, double b) {
  return __builtin_bit_cast(
      double, choose(is_a, __builtin_bit_cast(uint64_t, a), __builtin_bit_cast(uint64_t, b)));
}

/// log2 of a normal positive double, within 1e-13 of 1 + its magnitude.
KVCAL_INLINE KVCAL_HD double log2_of(double value) {
  // value = 2^exponent m with m from sqrt(1/2) to sqrt(2).
  const uint64_t bits = __builtin_bit_cast(uint64_t, value);
  const uint64_t shifted = bits - 0x3fe6a09e667f3bcdull;
  const double mantissa =
      __builtin_bit_cast(double, (shifted & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull);
  // The exponent is small and signed: 2^52 + 2^51 + exponent shows it in its low bits.
  const uint64_t biased = ((shifted >> 52) ^ 0x800u) + 0x4338000000000000ull;
  const double exponent = __builtin_bit_cast(double, biased) - (0x1.8p52 + 2048.0);
  // log2 m = (2 / ln 2) atanh t
  const double t = (mantissa - 1.0) / (mantissa + 1.0), s = t * t;
  double series = 1.0 / 19;
  series = series * s + 1.0 / 17;
  series = series * s + 1.0 / 15;
  series = series * s + 1.0 / 13;
  series = series * s + 1.0 / 11;
  series = series * s + 1.0 / 9;
  series = series * s + 1.0 / 7;
  series = series * s + 1.0 / 5;
  series = series * s + 1.0 / 3;
  series = series * s + 1.0;
  return exponent + series * t * 2.8853900817779268;
}

/// 2^y within 1e-14 relative, for y from -1021 to 1022.
KVCAL_INLINE KVCAL_HD double exp2_of(double y) {
  // 2^y = 2^whole e^(part ln 2)
  const double rounded = y + 0x1.8p52;
  const double x = (y - (rounded - 0x1.8p52)) * 0.69314718055994531;
  double e = 1.0 / 6227020800.0;
  e = e * x + 1.0 / 479001600.0;
  e = e * x + 1.0 / 39916800.0;
  e = e * x + 1.0 / 3628800.0;
  e = e * x + 1.0 / 362880.0;
  e = e * x + 1.0 / 40320.0;
  e = e * x + 1.0 / 5040.0;
  e = e * x + 1.0 / 720.0;
  e = e * x + 1.0 / 120.0;
  e = e * x + 1.0 / 24.0;
  e = e * x + 1.0 / 6.0;
  e = e * x + 1.0 / 2.0;
  e = e * x + 1.0;
  e = e * x + 1.0;
  return __builtin_bit_cast(
      double, __builtin_bit_cast(uint64_t, e) + (__builtin_bit_cast(uint64_t, rounded) << 52));
}

/// value^exponent, within 1e-12 relative; 0 for 0. value is 0 or a normal positive double; results
/// are limited to 2^-1021 and 2^1022.
KVCAL_INLINE KVCAL_HD double power(double value, double exponent) {
  const double wanted = log2_of(value) * exponent;
  const double above = chosen(wanted > -1021.0, wanted, -1021.0);
  const double result = exp2_of(chosen(above < 1022.0, above, 1022.0));
  return __builtin_bit_cast(
      double, choose(value == 0.0, uint64_t{0}, __builtin_bit_cast(uint64_t, result)));
}

}  // namespace kvcal
