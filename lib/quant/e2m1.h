#pragma once

#include <array>
#include <cstdint>

#include "core/tensor.h"
#include "quant/host_device.h"

/// The 4-bit float of FP4 weights, and the 8-bit power of two that MX forms have as scales. Source:
/// OCP Microscaling Formats 1.0, 5.3.3 and 5.4.1.
namespace kvcal {
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

namespace e8m0 {

inline constexpr uint8_t kNan = 255;

/// 2^(code - 127), exactly; the quiet NaN for 255.
constexpr float decode(uint8_t code) {
  if (code == kNan) return float_of(0x7fc00000u);
  return code == 0 ? 0x1p-127f : float_of(static_cast<uint32_t>(code) << 23);
}

/// Code of the largest power of two that is not over a positive finite value, at least 2^-127.
constexpr uint8_t encode_floor(float value) {
  return static_cast<uint8_t>(bits_of(value) >> 23 & 0xffu);
}

}  // namespace e8m0

/// Two 4-bit codes in a byte.
enum class NibbleOrder : uint8_t { kLowFirst, kHighFirst };

/// 4-bit code at index of a row of bytes.
constexpr uint8_t nibble_of(const std::byte* row, size_t index, NibbleOrder order) {
  const bool is_high = (index % 2 == 1) == (order == NibbleOrder::kLowFirst);
  const auto byte = static_cast<uint8_t>(row[index / 2]);
  return is_high ? static_cast<uint8_t>(byte >> 4) : static_cast<uint8_t>(byte & 15u);
}

}  // namespace kvcal
