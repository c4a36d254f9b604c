#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "quant/host_device.h"

/// The 8-bit floats of KV caches. One formula per direction serves all formats, which differ in
/// four numbers. Arithmetic only: constexpr, with equal results on host and device. Sources and
/// engines: docs/numerics.md.
namespace kvcal::fp8 {

/// kE4m3Fn:   1-4-3, bias 7, largest 448, no infinity, NaN 0x7f and 0xff (OCP "FN"); NVIDIA, AMD
/// from gfx950. kE4m3Fnuz: 1-4-3, bias 8, largest 240, no infinity, no -0, NaN 0x80; AMD gfx942
/// (MI300). kE5m2:     1-5-2, bias 15, largest finite 57344, IEEE infinity and NaN.
enum class Format : uint8_t { kE4m3Fn, kE4m3Fnuz, kE5m2 };

/// A stored code with its format in the type.
template <Format kFormat>
struct Code {
  uint8_t bits = 0;
  friend constexpr bool operator==(Code, Code) = default;
};
using E4m3Fn = Code<Format::kE4m3Fn>;
using E4m3Fnuz = Code<Format::kE4m3Fnuz>;
using E5m2 = Code<Format::kE5m2>;

/// The constants that define a format.
struct Layout {
  int mantissa_bits = 0;
  int bias = 0;
  uint32_t max_code = 0;  ///< code of the largest finite value
  uint32_t nan_code = 0;  ///< NaN that encode writes; the sign bit is added where the format has -0
};

KVCAL_HD constexpr Layout layout_of(Format format) {
  switch (format) {
    case Format::kE4m3Fn:
      return {3, 7, 0x7e, 0x7f};
    case Format::kE4m3Fnuz:
      return {3, 8, 0x7f, 0x80};
    case Format::kE5m2:
      break;
  }
  return {2, 15, 0x7b, 0x7f};
}

/// Largest finite value: 448, 240, 57344.
KVCAL_HD constexpr float max_value(Format format) {
  const Layout layout = layout_of(format);
  return float_of((layout.max_code << (23 - layout.mantissa_bits)) +
                  (static_cast<uint32_t>(127 - layout.bias) << 23));
}

/// torch's name of the format, "float8_e4m3fn".
constexpr std::string_view name_of(Format format) {
  switch (format) {
    case Format::kE4m3Fn:
      return "float8_e4m3fn";
    case Format::kE4m3Fnuz:
      return "float8_e4m3fnuz";
    case Format::kE5m2:
      break;
  }
  return "float8_e5m2";
}

/// float32 → code: nearest, ties to even. Values over the largest finite one saturate, infinity
/// too, also in E5M2; NaN stays NaN. A format without -0 rounds to +0. Source: vLLM's cache write,
/// on CUDA for E4M3FN and E5M2 (`__NV_SATFINITE`), on ROCm for E4M3FNUZ (`__HIP_SATFINITE`, which
/// turns infinity into NaN); other engines: docs/numerics.md.
KVCAL_HD constexpr uint8_t encode(float value, Format format) {
  const Layout layout = layout_of(format);
  const bool is_fnuz = layout.nan_code == 0x80;
  const int dropped = 23 - layout.mantissa_bits;
  const uint32_t sign = (bits_of(value) >> 24) & 0x80u;
  const uint32_t magnitude = bits_of(value) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | layout.nan_code);
  uint32_t code = layout.max_code;
  if (magnitude < static_cast<uint32_t>(128 - layout.bias) << 23) {
    // Subnormal codes count steps of 2^(1 - bias - mantissa_bits). Adding the power of two whose
    // last mantissa bit is worth one step lets the adder do the rounding and leaves the count in
    // the low bits.
    const uint32_t anchor = static_cast<uint32_t>(127 + 24 - layout.bias - layout.mantissa_bits)
                            << 23;
    code = bits_of(float_of(magnitude) + float_of(anchor)) - anchor;
  } else if (magnitude < bits_of(max_value(format))) {
    const uint32_t is_odd = (magnitude >> dropped) & 1u;
    const uint32_t rounded = magnitude + (1u << (dropped - 1)) - 1u + is_odd;
    code =
        (rounded >> dropped) - (static_cast<uint32_t>(127 - layout.bias) << layout.mantissa_bits);
  }
  return static_cast<uint8_t>(is_fnuz && code == 0 ? 0u : sign | code);
}

/// code → its float32 value, exactly; NaN codes give the quiet NaN with the code's sign.
KVCAL_HD constexpr float decode(uint8_t code, Format format) {
  const Layout layout = layout_of(format);
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7fu;
  const bool is_fnuz = layout.nan_code == 0x80;
  if (is_fnuz ? code == 0x80u : magnitude > layout.max_code) {
    const bool is_infinity = format == Format::kE5m2 && magnitude == layout.max_code + 1;
    return float_of(sign | (is_infinity ? 0x7f800000u : 0x7fc00000u));
  }
  if (magnitude >> layout.mantissa_bits == 0) {
    const float step =
        float_of(static_cast<uint32_t>(128 - layout.bias - layout.mantissa_bits) << 23);
    return float_of(sign | bits_of(static_cast<float>(magnitude) * step));
  }
  return float_of(sign | ((magnitude << (23 - layout.mantissa_bits)) +
                          (static_cast<uint32_t>(127 - layout.bias) << 23)));
}

/// encode and decode with the format in the type.
template <Format kFormat>
KVCAL_HD constexpr Code<kFormat> encode(float value) {
  return {encode(value, kFormat)};
}
template <Format kFormat>
KVCAL_HD constexpr float decode(Code<kFormat> code) {
  return decode(code.bits, kFormat);
}

static_assert(max_value(Format::kE4m3Fn) == 448.0f && max_value(Format::kE4m3Fnuz) == 240.0f &&
              max_value(Format::kE5m2) == 57344.0f);

/// Values of all codes of a format.
struct CodeValues {
  std::array<float, 256> values{};
  constexpr explicit CodeValues(Format format) {
    for (size_t code = 0; code < values.size(); ++code)
      values[code] = decode(static_cast<uint8_t>(code), format);
  }
  constexpr float operator[](uint8_t code) const { return values[code]; }
};

inline constexpr CodeValues kE4m3Values(Format::kE4m3Fn);

}  // namespace kvcal::fp8
