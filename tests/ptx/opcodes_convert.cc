// Conversions between numbers.
#include <cmath>
#include <limits>

#include "numbers.h"
#include "opcodes.h"

namespace kvcal::ptx {
namespace {

/// The nearest integer of T in its range; NaN becomes 0, or the sign bit where T has 64 bits.
template <class T>
T integer_of(double whole) {
  if (std::isnan(whole)) return sizeof(T) == 8 ? static_cast<T>(uint64_t{1} << 63) : T{0};
  if (whole <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  if (whole >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  return static_cast<T>(whole);
}

/// From's integers to To's: sign or zeros are extended, upper bits dropped.
template <class To, class From>
void add_integer(Opcodes& opcodes, const std::string& types) {
  opcodes.add_each<To, From>("cvt." + types, [](From x) { return static_cast<To>(x); });
}
template <class From>
void add_integers_from(Opcodes& opcodes, const std::string& type) {
  add_integer<int16_t, From>(opcodes, "s16." + type);
  add_integer<uint16_t, From>(opcodes, "u16." + type);
  add_integer<int32_t, From>(opcodes, "s32." + type);
  add_integer<uint32_t, From>(opcodes, "u32." + type);
  add_integer<int64_t, From>(opcodes, "s64." + type);
  add_integer<uint64_t, From>(opcodes, "u64." + type);
}

template <class From>
void add_floats_from(Opcodes& opcodes, const std::string& type) {
  opcodes.add_each<float, From>("cvt.rn.f32." + type, [](From x) { return static_cast<float>(x); });
  opcodes.add_each<double, From>("cvt.rn.f64." + type,
                                 [](From x) { return static_cast<double>(x); });
}

/// Rounding: rn nearest even, rz toward zero, rm down, rp up; the same letters with i round to
/// whole numbers.
template <class To>
void add_integer_of_float(Opcodes& opcodes, const std::string& type) {
  const std::string from = "." + type + ".f32";
  opcodes.add_each<To, float>("cvt.rni" + from,
                              [](float x) { return integer_of<To>(std::nearbyint(x)); });
  opcodes.add_each<To, float>("cvt.rzi" + from,
                              [](float x) { return integer_of<To>(std::trunc(x)); });
  opcodes.add_each<To, float>("cvt.rmi" + from,
                              [](float x) { return integer_of<To>(std::floor(x)); });
  opcodes.add_each<To, float>("cvt.rpi" + from,
                              [](float x) { return integer_of<To>(std::ceil(x)); });
}

uint32_t pair_of(uint16_t high, uint16_t low) {
  return static_cast<uint32_t>(high) << 16 | low;
}
uint16_t codes_of(float high, float low, const ByteFormat& format) {
  return static_cast<uint16_t>(code_of(high, format) << 8 | code_of(low, format));
}

void add_short_floats(Opcodes& opcodes) {
  opcodes.add_each<float, uint16_t>("cvt.f32.f16", [](uint16_t x) { return float_of_half(x); });
  opcodes.add_each<float, uint16_t>("cvt.f32.bf16", [](uint16_t x) { return float_of_bfloat(x); });
  opcodes.add_each<uint16_t, float>("cvt.rn.f16.f32", [](float x) { return half_of(x); });
  opcodes.add_each<uint16_t, float>("cvt.rn.bf16.f32", [](float x) { return bfloat_of(x); });
  opcodes.add_each<uint32_t, float, float>("cvt.rn.f16x2.f32", [](float high, float low) {
    return pair_of(half_of(high), half_of(low));
  });
  opcodes.add_each<uint32_t, float, float>("cvt.rn.bf16x2.f32", [](float high, float low) {
    return pair_of(bfloat_of(high), bfloat_of(low));
  });
}

void add_byte_floats(Opcodes& opcodes) {
  opcodes.add_each<uint16_t, float, float>(
      "cvt.rn.satfinite.e4m3x2.f32",
      [](float high, float low) { return codes_of(high, low, kE4m3); });
  opcodes.add_each<uint16_t, float, float>(
      "cvt.rn.satfinite.e5m2x2.f32",
      [](float high, float low) { return codes_of(high, low, kE5m2); });
  opcodes.add_each<uint32_t, uint16_t>("cvt.rn.f16x2.e4m3x2", [](uint16_t codes) {
    return pair_of(half_of(float_of_e4m3(static_cast<uint8_t>(codes >> 8))),
                   half_of(float_of_e4m3(static_cast<uint8_t>(codes))));
  });
  opcodes.add_each<uint32_t, uint16_t>("cvt.rn.f16x2.e5m2x2", [](uint16_t codes) {
    return pair_of(half_of(float_of_e5m2(static_cast<uint8_t>(codes >> 8))),
                   half_of(float_of_e5m2(static_cast<uint8_t>(codes))));
  });
}

}  // namespace

void add_conversion_opcodes(Opcodes& opcodes) {
  add_integers_from<int8_t>(opcodes, "s8");
  add_integers_from<uint8_t>(opcodes, "u8");
  add_integers_from<int16_t>(opcodes, "s16");
  add_integers_from<uint16_t>(opcodes, "u16");
  add_integers_from<int32_t>(opcodes, "s32");
  add_integers_from<uint32_t>(opcodes, "u32");
  add_integers_from<int64_t>(opcodes, "s64");
  add_integers_from<uint64_t>(opcodes, "u64");
  add_floats_from<uint8_t>(opcodes, "u8");
  add_floats_from<int16_t>(opcodes, "s16");
  add_floats_from<uint16_t>(opcodes, "u16");
  add_floats_from<int32_t>(opcodes, "s32");
  add_floats_from<uint32_t>(opcodes, "u32");
  add_floats_from<int64_t>(opcodes, "s64");
  add_floats_from<uint64_t>(opcodes, "u64");
  add_integer_of_float<int32_t>(opcodes, "s32");
  add_integer_of_float<uint32_t>(opcodes, "u32");
  add_integer_of_float<int64_t>(opcodes, "s64");
  add_integer_of_float<uint64_t>(opcodes, "u64");
  opcodes.add_each<double, float>("cvt.f64.f32", [](float x) { return double{x}; });
  opcodes.add_each<float, double>("cvt.rn.f32.f64", [](double x) { return static_cast<float>(x); });
  opcodes.add_each<float, float>("cvt.rni.f32.f32", [](float x) { return std::nearbyint(x); });
  opcodes.add_each<float, float>("cvt.rzi.f32.f32", [](float x) { return std::trunc(x); });
  opcodes.add_each<float, float>("cvt.rmi.f32.f32", [](float x) { return std::floor(x); });
  opcodes.add_each<float, float>("cvt.rpi.f32.f32", [](float x) { return std::ceil(x); });
  add_short_floats(opcodes);
  add_byte_floats(opcodes);
}

}  // namespace kvcal::ptx
