#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

// Floats of 8 and 16 bits, written from their formats: kvcal's own codecs are under test.
// Conversions round to nearest, ties to even.
namespace kvcal::ptx {

inline float float_of_half(uint16_t half) {
  // The exponent moves by a product, which is exact for subnormals too.
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  bits |= (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;  // infinity and NaN
  return std::bit_cast<float>(bits | static_cast<uint32_t>(half & 0x8000) << 16);
}
inline float float_of_bfloat(uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16);
}

/// NaN becomes the canonical NaN, 0x7fff.
inline uint16_t half_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // from 65520 on
  if (magnitude < 0x38800000)                         // a multiple of the smallest subnormal
    return static_cast<uint16_t>(
        sign | static_cast<uint16_t>(std::nearbyint(std::fabs(double{value}) * 0x1p24)));
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}
inline uint16_t bfloat_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// A format of 8 bits. Source: OCP 8-bit floating point specification.
struct ByteFormat {
  int mantissa_bits, bias;
  float largest;
  uint8_t largest_code;
};
constexpr ByteFormat kE4m3{3, 7, 448.0f, 0x7e}, kE5m2{2, 15, 57344.0f, 0x7b};

inline float float_of_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  float value = exponent == 0 ? static_cast<float>(fraction) * 0x1p-9f
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  if ((code & 0x7f) == 0x7f) value = NAN;
  return code & 0x80 ? -value : value;
}
/// The upper half of a half.
inline float float_of_e5m2(uint8_t code) {
  return float_of_half(static_cast<uint16_t>(code << 8));
}

/// The largest number where value is larger; NaN becomes 0x7f.
inline uint8_t code_of(float value, const ByteFormat& format) {
  if (std::isnan(value)) return 0x7f;
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  const double magnitude = std::fabs(double{value});
  if (magnitude == 0.0) return sign;
  if (magnitude >= format.largest) return sign | format.largest_code;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, 1 - format.bias);
  // In units of the last bit; a carry runs into the exponent, as it must.
  const auto units =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  const int code = units + ((exponent + format.bias - 1) << format.mantissa_bits);
  return sign | static_cast<uint8_t>(std::min<int>(code, format.largest_code));
}

}  // namespace kvcal::ptx
