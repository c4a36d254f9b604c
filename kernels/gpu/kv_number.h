#pragma once

#include "core/tensor.h"
#include "quant/fp8.h"
#include "quant/half.h"

// Stored elements of a KV cache as float32 in a few instructions. Exact, as quant/fp8.h and
// quant/half.h are; of a NaN only that it is one is kept.
namespace kvcal::gpu {

/// A float with fewer exponent bits, its exponent and mantissa moved to where float32 has them,
/// stands for itself times a power of two, subnormals too. What was infinity or NaN then needs the
/// upper exponent bits set: adding step to just those codes carries into the bit above.
KVCAL_HD constexpr float widened(uint32_t sign, uint32_t magnitude, uint32_t step, uint32_t carry,
                                 float power) {
  const uint32_t special = (magnitude + step) & carry;
  return float_of(sign | magnitude | special * (0x78000000u / carry)) * power;
}

KVCAL_HD constexpr float number_of(float value) {
  return value;
}
KVCAL_HD constexpr float number_of(BF16 value) {
  return float_of(static_cast<uint32_t>(value.bits) << 16);
}
KVCAL_HD constexpr float number_of(F16 value) {
  const uint32_t magnitude = value.bits & 0x7fffu;
  return widened((value.bits & 0x8000u) << 16, magnitude << 13, 0x00800000u, 0x10000000u, 0x1p112f);
}
KVCAL_HD constexpr float number_of(fp8::E5m2 code) {
  const uint32_t magnitude = code.bits & 0x7fu;
  return widened((code.bits & 0x80u) << 24, magnitude << 21, 0x00800000u, 0x10000000u, 0x1p112f);
}
KVCAL_HD constexpr float number_of(fp8::E4m3Fn code) {
  const uint32_t magnitude = code.bits & 0x7fu;
  return widened((code.bits & 0x80u) << 24, magnitude << 20, 0x00100000u, 0x08000000u, 0x1p120f);
}
KVCAL_HD constexpr float number_of(fp8::E4m3Fnuz code) {
  const uint32_t magnitude = code.bits & 0x7fu;
  if (code.bits == 0x80u) return float_of(0x7fc00000u);
  return float_of((code.bits & 0x80u) << 24 | magnitude << 20) * 0x1p119f;
}

}  // namespace kvcal::gpu
