// Fast exact conversion of stored KV elements to float32, as in quant/fp8.h and quant/half.h, on
// the host too. NaN stays NaN, without its payload.

#pragma once

#include "core/tensor.h"
#include "quant/fp8.h"
#include "quant/half.h"

namespace kvcal::gpu {

/// Converts a float with fewer exponent bits: with exponent and mantissa shifted to float32's
/// position, it equals the number times a power of two, also for subnormals. Infinity and NaN then
/// need the upper exponent bits set: adding step to these codes alone carries into the bit above.
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
