#pragma once

#include "core/tensor.h"
#include "quant/host_device.h"

#include <cstdint>

/// 16-bit floats ↔ float32. constexpr, with equal results on host and device. Rounds to nearest,
/// ties to even; too large values become infinity (these formats do not saturate). A rounded NaN
/// becomes the quiet NaN with its sign, 0x7e00 or 0x7fc0.
namespace kvcal {

KVCAL_HD constexpr float to_float(BF16 value) {
  return float_of(static_cast<uint32_t>(value.bits) << 16);
}

KVCAL_HD constexpr float to_float(F16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude > 0x7c00u) return float_of(sign | 0x7fc00000u | (magnitude << 13));
  if (magnitude == 0x7c00u) return float_of(sign | 0x7f800000u);
  // A subnormal counts steps of 2^-24, and every count is exact in float32.
  if (magnitude < 0x400u) return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-24f));
  return float_of(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
}

KVCAL_HD constexpr BF16 to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return {static_cast<uint16_t>(((bits >> 16) & 0x8000u) | 0x7fc0u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

KVCAL_HD constexpr F16 to_f16(float value) {
  const uint32_t sign = (bits_of(value) >> 16) & 0x8000u;
  const uint32_t magnitude = bits_of(value) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  // From halfway between the largest value, 65504, and the step after it: 65520.
  if (magnitude >= bits_of(65520.0f)) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < bits_of(0x1p-14f)) {
    // Subnormals count steps of 2^-24, the last mantissa bit of 0.5: the adder rounds (as in
    // fp8::encode).
    const uint32_t count = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    return {static_cast<uint16_t>(sign | count)};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded >> 13) - ((127u - 15u) << 10)))};
}

}  // namespace kvcal
