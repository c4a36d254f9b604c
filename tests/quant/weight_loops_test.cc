#include "quant/weight_loops.h"

#include <cmath>
#include <cstring>
#include <random>

#include "expected_codes.h"
#include "quant/half.h"
#include "quant/power.h"
#include "support/catch.h"

using namespace kvcal;
using weight_loops::Coding;
using weight_loops::Loops;
using weight_loops::Run;

namespace {

/// Elements whose loops are compared: all finite patterns of a 16-bit dtype, or random bits of F32
/// with all exponents.
std::vector<uint32_t> elements_of(DType dtype) {
  std::vector<uint32_t> elements;
  std::mt19937 random(7);
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const uint32_t bits = dtype == DType::kF32 ? static_cast<uint32_t>(random()) : i;
    const uint32_t infinity = dtype == DType::kF32   ? 0x7f800000u
                              : dtype == DType::kF16 ? 0x7c00u
                                                     : 0x7f80u;
    if ((bits & (dtype == DType::kF32 ? 0x7fffffffu : 0x7fffu)) < infinity)
      elements.push_back(bits);
  }
  return elements;
}

float value_of(DType dtype, uint32_t bits) {
  if (dtype == DType::kF32) return float_of(bits);
  const auto half = static_cast<uint16_t>(bits);
  return dtype == DType::kF16 ? to_float(F16{half}) : to_float(BF16{half});
}

std::vector<std::byte> bytes_of(DType dtype, const std::vector<uint32_t>& elements) {
  const size_t size = dtype == DType::kF32 ? 4 : 2;
  std::vector<std::byte> bytes(elements.size() * size);
  for (size_t i = 0; i < elements.size(); ++i)
    std::memcpy(bytes.data() + i * size, &elements[i], size);
  return bytes;
}

/// The definition, through the codecs that have tests of their own.
uint8_t expected_code(float value, DType dtype, const Coding& coding) {
  float quotient = value / coding.scale;
  if (coding.rounds_quotient && dtype == DType::kF16) quotient = to_float(to_f16(quotient));
  if (coding.rounds_quotient && dtype == DType::kBF16) quotient = to_float(to_bf16(quotient));
  return fp8::encode(quotient + 0.0f, fp8::Format::kE4m3Fn);
}

/// Some inside what a reciprocal serves, some beyond, powers of two and mantissas of ones.
std::vector<float> some_scales() {
  std::vector<float> scales{1.0f,     0x1p-9f,  0x1.fffffep-7f, 0x1.000002p-7f,
                            0x1p-60f, 0x1p-61f, 0x1p-140f,      0x1p-126f,
                            3.0f,     0x1p100f, 0x1.fffffep127f};
  std::mt19937 random(11);
  for (int i = 0; i < 24; ++i)
    scales.push_back(std::ldexp(1.0f + static_cast<float>(random() >> 9) * 0x1p-23f,
                                -static_cast<int>(random() % 40)));
  return scales;
}

float rounded(DType dtype, float value) {
  if (dtype == DType::kF32) return value;
  return dtype == DType::kF16 ? to_float(to_f16(value)) : to_float(to_bf16(value));
}

uint8_t expected_e2m1(float value, DType dtype, const Coding& coding) {
  const float quotient = value / coding.scale;
  return e2m1::encode((coding.rounds_quotient ? rounded(dtype, quotient) : quotient) + 0.0f);
}

constexpr DType kDTypes[]{DType::kF16, DType::kBF16, DType::kF32};

/// The nearest value, ties to the even code; the sign stays, of zero too.
uint8_t expected_e2m3(float value, DType dtype, const Coding& coding) {
  const float exact = value / coding.scale;
  const float quotient = coding.rounds_quotient ? rounded(dtype, exact) : exact;
  const float magnitude = std::fmin(std::fabs(quotient), e2m3::kMax);
  uint8_t code = 0;
  for (; code < 31; ++code) {
    const float middle = (e2m3::decode(code) + e2m3::decode(static_cast<uint8_t>(code + 1))) / 2;
    if (code % 2 == 0 ? magnitude <= middle : magnitude < middle) break;
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 32 : 0));
}

/// Compares the codes of all instruction sets, dtypes and scales with the definition's.
void check_codes(void (*Loops::*encode)(const Run&, const Coding&, uint8_t*),
                 uint8_t (*expected)(float, DType, const Coding&)) {
  for (const DType dtype : kDTypes) {
    const std::vector<uint32_t> elements = elements_of(dtype);
    const std::vector<std::byte> bytes = bytes_of(dtype, elements);
    const Run run{bytes.data(), dtype, elements.size()};
    for (const bool rounds : {false, true})
      for (const float scale : some_scales()) {
        const Coding coding{scale, rounds};
        for (const Loops& loops : weight_loops::runnable()) {
          std::vector<uint8_t> codes(elements.size());
          (loops.*encode)(run, coding, codes.data());
          test::Mismatches mismatches;
          for (size_t i = 0; i < codes.size(); ++i)
            mismatches.compare(elements[i], codes[i],
                               expected(value_of(dtype, elements[i]), dtype, coding));
          INFO(loops.name << ", " << dtype << ", scale " << scale << ", rounds " << rounds);
          CHECK(mismatches.text() == "");
        }
      }
  }
}

uint8_t expected_int(float value, DType dtype, const weight_loops::IntCoding& coding) {
  const float quotient = rounded(dtype, rounded(dtype, value / coding.scale) + coding.zero_point);
  const float clamped = std::fmin(std::fmax(quotient, coding.lowest), coding.highest);
  return static_cast<uint8_t>(static_cast<int>(std::nearbyint(clamped)) + coding.added);
}

}  // namespace

TEST_CASE("weight_loops: every instruction set gives the E2M1 codes of the definition") {
  check_codes(&Loops::encode_e2m1, expected_e2m1);
}

TEST_CASE("weight_loops: every instruction set gives the E2M3 codes of the definition") {
  check_codes(&Loops::encode_e2m3, expected_e2m3);
}

TEST_CASE("weight_loops: every instruction set gives the integers of the definition") {
  for (const DType dtype : kDTypes) {
    std::vector<uint32_t> elements = elements_of(dtype);
    // The scale of a group leaves no larger quotient.
    std::erase_if(elements, [&](uint32_t bits) { return std::fabs(value_of(dtype, bits)) > 6e3f; });
    const std::vector<std::byte> bytes = bytes_of(dtype, elements);
    const Run run{bytes.data(), dtype, elements.size()};
    for (const float scale : {1.0f, 0.3f, 0x1p-3f, 97.0f, 3000.0f})
      for (const float zero_point : {0.0f, -3.0f, 7.0f})
        for (const int bits : {8, 4, 3}) {
          const float lowest = -std::exp2(static_cast<float>(bits - 1));
          const weight_loops::IntCoding coding{scale, zero_point, lowest, -lowest - 1,
                                               zero_point == 0.0f ? 0 : 1 << (bits - 1)};
          for (const Loops& loops : weight_loops::runnable()) {
            std::vector<uint8_t> codes(elements.size());
            loops.encode_int(run, coding, codes.data());
            test::Mismatches mismatches;
            for (size_t i = 0; i < codes.size(); ++i)
              mismatches.compare(elements[i], codes[i],
                                 expected_int(value_of(dtype, elements[i]), dtype, coding));
            INFO(loops.name << ", " << dtype << ", scale " << scale << ", zero point " << zero_point
                            << ", bits " << bits);
            CHECK(mismatches.text() == "");
          }
        }
  }
}

TEST_CASE("weight_loops: the sign of a zero quotient stays on request") {
  const uint16_t elements[]{0x8000, 0x0000, 0xbf80};  // -0, 0, -1 in BF16
  const Run run{reinterpret_cast<const std::byte*>(elements), DType::kBF16, 3};
  for (const Loops& loops : weight_loops::runnable()) {
    std::vector<uint8_t> codes(3);
    loops.encode(run, {1.0f, true, true}, codes.data());
    CHECK(codes == std::vector<uint8_t>{0x80, 0x00, 0xb8});
    loops.encode(run, {1.0f, true, false}, codes.data());
    CHECK(codes == std::vector<uint8_t>{0x00, 0x00, 0xb8});
    const auto [smallest, largest] = loops.extremes(run);
    CHECK((smallest == -1.0f && largest == 0.0f));
  }
}

TEST_CASE("weight_loops: every instruction set gives the codes of the definition") {
  for (const DType dtype : kDTypes) {
    const std::vector<uint32_t> elements = elements_of(dtype);
    const std::vector<std::byte> bytes = bytes_of(dtype, elements);
    const Run run{bytes.data(), dtype, elements.size()};
    for (const bool rounds : {false, true}) {
      for (const float scale : some_scales()) {
        const Coding coding{scale, rounds};
        std::vector<uint8_t> expected;
        for (const uint32_t bits : elements)
          expected.push_back(expected_code(value_of(dtype, bits), dtype, coding));
        for (const Loops& loops : weight_loops::runnable()) {
          std::vector<uint8_t> codes(elements.size());
          loops.encode(run, coding, codes.data());
          test::Mismatches mismatches;
          for (size_t i = 0; i < codes.size(); ++i)
            mismatches.compare(elements[i], codes[i], expected[i]);
          INFO(loops.name << ", " << dtype << ", scale " << scale << ", rounds " << rounds);
          CHECK(mismatches.text() == "");
        }
      }
    }
  }
}

TEST_CASE("weight_loops: every instruction set gives the same powers, within 1e-12 of pow") {
  for (const DType dtype : kDTypes) {
    const std::vector<uint32_t> elements = elements_of(dtype);
    const std::vector<std::byte> bytes = bytes_of(dtype, elements);
    const Run run{bytes.data(), dtype, elements.size()};
    const Coding coding{0.0123f, false};
    for (const double norm : {2.0, 2.4, 1.0, 0.5}) {
      std::vector<double> first;
      for (const Loops& loops : weight_loops::runnable()) {
        std::vector<double> powers(elements.size());
        loops.error_powers(run, coding, norm, powers.data());
        INFO(loops.name << ", " << dtype << ", norm " << norm);
        if (first.empty()) first = powers;
        CHECK(std::memcmp(powers.data(), first.data(), powers.size() * sizeof(double)) == 0);
      }
      double worst = 0;
      for (size_t i = 0; i < elements.size(); ++i) {
        const float value = value_of(dtype, elements[i]);
        const float code = fp8::decode(expected_code(value, dtype, coding), fp8::Format::kE4m3Fn);
        const double error =
            std::fabs(static_cast<double>(code) * static_cast<double>(coding.scale) -
                      static_cast<double>(value));
        const double wanted = std::pow(error, norm);
        worst = std::max(worst,
                         wanted == 0 ? std::fabs(first[i]) : std::fabs(first[i] - wanted) / wanted);
      }
      INFO(dtype << ", norm " << norm);
      CHECK(worst < 1e-12);
    }
  }
}

TEST_CASE("weight_loops: every instruction set finds the largest magnitude, wherever it stands") {
  for (const DType dtype : kDTypes) {
    for (const size_t at : {0, 1, 31, 40, 66}) {
      std::vector<uint32_t> elements(67, 3);
      const uint32_t sign = dtype == DType::kF32 ? 0x80000000u : 0x8000u;
      elements[at] = sign | 0x1234u;
      const std::vector<std::byte> bytes = bytes_of(dtype, elements);
      for (const Loops& loops : weight_loops::runnable()) {
        INFO(loops.name << ", " << dtype << ", at " << at);
        CHECK(loops.largest_magnitude({bytes.data(), dtype, elements.size()}) == 0x1234u);
        CHECK(loops.largest_magnitude({bytes.data(), dtype, at}) == (at == 0 ? 0u : 3u));
      }
    }
  }
}

TEST_CASE("power: as the C library's, to a trillionth") {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100000; ++i) {
    const double value = std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52,
                                    static_cast<int>(random() % 300) - 150);
    const double exponent = static_cast<double>(random() >> 40) * 0x1p-22;  // up to 4
    const double wanted = std::pow(value, exponent);
    if (std::fabs(power(value, exponent) - wanted) > 1e-12 * wanted) CHECK(value == exponent);
    const double log = std::log2(value);
    if (std::fabs(log2_of(value) - log) > 1e-13 * (1 + std::fabs(log))) CHECK(value == log);
  }
  CHECK(power(0.0, 2.4) == 0.0);
  CHECK(power(1.0, 2.4) == 1.0);
  CHECK(power(2.0, 3.0) == Approx(8.0).epsilon(1e-14));
  CHECK(log2_of(0x1p-900) == -900.0);
}
