#pragma once

#include <array>
#include <cstdint>

#include "core/tensor.h"
#include "quant/host_device.h"

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

/// The 4-bit float of FP4 weights, and the 8-bit power of two that MX forms have as scales. Source:
/// OCP Microscaling Formats 1.0, 5.3.3 and 5.4.1.
namespace e2m1 {

/// Magnitudes of codes 0 to 7; bit 3 of a code is the sign.
inline constexpr std::array<float, 8> kMagnitudes{0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
inline constexpr float kMax = 6.0f;

/// Value of the lowest four bits; code 8 is -0.
constexpr float decode(uint8_t code) {
  const float magnitude = kMagnitudes[code & 7u];
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

/// float32 → code: nearest, ties to the even code. Values over 6 saturate; the sign stays, also of
/// values that round to zero. NaN, which the format lacks, gives 6.
constexpr uint8_t encode(float value) {
  const uint32_t sign = bits_of(value) >> 31 << 3;
  const float magnitude = float_of(bits_of(value) & 0x7fffffffu);
  uint32_t code = 0;
  for (; code < 7; ++code) {
    const float middle = (kMagnitudes[code] + kMagnitudes[code + 1]) / 2;
    if (code % 2 == 0 ? magnitude <= middle : magnitude < middle) break;
  }
  return static_cast<uint8_t>(sign | code);
}

}  // namespace e2m1

/// The 6-bit float of FP6 weights. Source: OCP Microscaling Formats 1.0, 5.3.2.
namespace e2m3 {

inline constexpr float kMax = 7.5f;

/// Value of the lowest six bits: three of mantissa, two of exponent, the sign. Code 32 is -0.
constexpr float decode(uint8_t code) {
  const uint32_t mantissa = code & 7u, exponent = code >> 3 & 3u;
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) / 8
                                        : static_cast<float>((8 + mantissa) << (exponent - 1)) / 8;
  return (code & 32u) != 0 ? -magnitude : magnitude;
}

}  // namespace e2m3

namespace e8m0 {

inline constexpr uint8_t kNan = 255;

/// 2^(code - 127), exactly; the quiet NaN for 255.
constexpr float decode(uint8_t code) {
  if (code == kNan) return float_of(0x7fc00000u);
  return code == 0 ? 0x1p-127f : float_of(static_cast<uint32_t>(code) << 23);
}

}  // namespace e8m0

}  // namespace kvcal
