#include "quant/fp8.h"

#include "expected_codes.h"
#include "quant/half.h"
#include "support/catch.h"

#include <cmath>
#include <limits>
#include <set>

using namespace kvcal;
using fp8::Format;

// The codec runs at compile time.
static_assert(fp8::encode(448.0f, Format::kE4m3Fn) == 0x7e);
static_assert(fp8::encode(-0.0f, Format::kE4m3Fn) == 0x80);
static_assert(fp8::encode(-0.0f, Format::kE4m3Fnuz) == 0x00);
static_assert(fp8::encode(1.0f, Format::kE4m3Fnuz) == 0x40);
static_assert(fp8::encode<Format::kE5m2>(1.0f) == fp8::E5m2{0x3c});
static_assert(fp8::decode(fp8::E4m3Fn{0x01}) == 0x1p-9f);
static_assert(fp8::decode(fp8::E4m3Fnuz{0x01}) == 0x1p-10f);
static_assert(fp8::decode(fp8::E5m2{0x01}) == 0x1p-16f);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Codes of the finite values from zero up, without the sign.
uint32_t max_code(Format format) {
  return fp8::layout_of(format).max_code;
}

float decode(uint32_t code, Format format) {
  return fp8::decode(static_cast<uint8_t>(code), format);
}

}  // namespace

TEST_CASE("fp8: all 256 codes decode as ml_dtypes does") {
  const auto expected = test::read_expected<float>("decode.f32");
  REQUIRE(expected.size() == 256 * test::kFormats.size());
  for (size_t f = 0; f < test::kFormats.size(); ++f) {
    test::Mismatches mismatches;
    for (uint32_t code = 0; code < 256; ++code) {
      const float found = decode(code, test::kFormats[f]), wanted = expected[f * 256 + code];
      if (std::isnan(wanted))
        mismatches.compare(code, std::isnan(found), 1);
      else
        mismatches.compare(code, bits_of(found), bits_of(wanted));
    }
    INFO(fp8::name_of(test::kFormats[f]));
    CHECK(mismatches.text() == "");
  }
}

TEST_CASE("fp8: finite codes are monotonic, unique and survive a round trip") {
  for (const Format format : test::kFormats) {
    INFO(fp8::name_of(format));
    std::set<float> values;
    for (uint32_t code = 0; code <= max_code(format); ++code) {
      if (code > 0) CHECK(decode(code, format) > decode(code - 1, format));
      values.insert(decode(code, format));
      CHECK(fp8::encode(decode(code, format), format) == code);
      if (format == Format::kE4m3Fnuz && code == 0) continue;  // 0x80 is its NaN
      values.insert(decode(code | 0x80u, format));
      CHECK(decode(code | 0x80u, format) == -decode(code, format));
      CHECK(fp8::encode(decode(code | 0x80u, format), format) == (code | 0x80u));
    }
    CHECK(values.size() == 2 * max_code(format) + 1);  // zero once
    CHECK(decode(max_code(format), format) == fp8::max_value(format));
  }
}

TEST_CASE("fp8: a halfway value goes to the even code, its neighbours do not") {
  for (const Format format : test::kFormats) {
    for (uint32_t code = 0; code < max_code(format); ++code) {
      const float below = decode(code, format), above = decode(code + 1, format);
      const float middle = (below + above) / 2;
      INFO(fp8::name_of(format) << " between codes " << code << " and " << code + 1);
      const uint32_t even = code % 2 == 0 ? code : code + 1;
      CHECK(fp8::encode(middle, format) == even);
      CHECK(fp8::encode(std::nextafter(middle, below), format) == code);
      CHECK(fp8::encode(std::nextafter(middle, above), format) == code + 1);
      CHECK(fp8::encode(std::nextafter(above, below), format) == code + 1);
      CHECK(fp8::encode(std::nextafter(below, above), format) == code);
      // The mirror image, but for the zero that E4M3FNUZ has once only.
      const bool is_plain_zero = format == Format::kE4m3Fnuz && even == 0;
      CHECK(fp8::encode(-middle, format) == (is_plain_zero ? 0u : even | 0x80u));
      CHECK(fp8::encode(-std::nextafter(middle, above), format) == ((code + 1) | 0x80u));
    }
  }
}

TEST_CASE("fp8: what is too large saturates, infinity too") {
  for (const Format format : test::kFormats) {
    INFO(fp8::name_of(format));
    const float largest = fp8::max_value(format);
    const float half_step = (largest - decode(max_code(format) - 1, format)) / 2;
    for (const float value : {largest, std::nextafter(largest, kInfinity), largest + half_step,
                              std::nextafter(largest + half_step, kInfinity), largest * 2,
                              std::numeric_limits<float>::max(), kInfinity}) {
      CHECK(fp8::encode(value, format) == max_code(format));
      CHECK(fp8::encode(-value, format) == (max_code(format) | 0x80u));
    }
  }
}

TEST_CASE("fp8: NaN stays NaN, zero keeps its sign where the format has one") {
  const float quiet_payload = float_of(0x7fc12345u), signalling = float_of(0x7f800001u);
  for (const Format format : test::kFormats) {
    INFO(fp8::name_of(format));
    for (const float value : {kNaN, quiet_payload, signalling}) {
      CHECK(std::isnan(fp8::decode(fp8::encode(value, format), format)));
      CHECK(std::isnan(
          fp8::decode(fp8::encode(float_of(bits_of(value) | 0x80000000u), format), format)));
    }
    CHECK(fp8::encode(0.0f, format) == 0);
    const bool has_negative_zero = format != Format::kE4m3Fnuz;
    const float subnormal = std::numeric_limits<float>::denorm_min();
    for (const float value : {-0.0f, -subnormal, -std::numeric_limits<float>::min()})
      CHECK(fp8::encode(value, format) == (has_negative_zero ? 0x80 : 0x00));
  }
  CHECK(fp8::encode(kNaN, Format::kE4m3Fnuz) == 0x80);
  CHECK(fp8::encode(-kNaN, Format::kE4m3Fnuz) == 0x80);
  CHECK(fp8::decode(0x7c, Format::kE5m2) == kInfinity);
  CHECK(fp8::decode(0xfc, Format::kE5m2) == -kInfinity);
}

TEST_CASE("fp8: every BF16 and every F16 input gets ml_dtypes' code") {
  const auto of_bf16 = test::read_expected<uint8_t>("bf16.u8");
  const auto of_f16 = test::read_expected<uint8_t>("f16.u8");
  REQUIRE(of_bf16.size() == 65536 * test::kFormats.size());
  REQUIRE(of_f16.size() == of_bf16.size());
  for (size_t f = 0; f < test::kFormats.size(); ++f) {
    test::Mismatches bf16, f16;
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const Format format = test::kFormats[f];
      const uint16_t half = static_cast<uint16_t>(bits);
      bf16.compare(bits, fp8::encode(to_float(BF16{half}), format), of_bf16[f * 65536 + bits]);
      f16.compare(bits, fp8::encode(to_float(F16{half}), format), of_f16[f * 65536 + bits]);
    }
    INFO(fp8::name_of(test::kFormats[f]));
    CHECK(bf16.text() == "");
    CHECK(f16.text() == "");
  }
}

TEST_CASE("fp8: names and largest values") {
  CHECK(fp8::name_of(Format::kE4m3Fn) == "float8_e4m3fn");
  CHECK(fp8::name_of(Format::kE4m3Fnuz) == "float8_e4m3fnuz");
  CHECK(fp8::name_of(Format::kE5m2) == "float8_e5m2");
  CHECK(fp8::max_value(Format::kE4m3Fn) == 448.0f);
  CHECK(fp8::max_value(Format::kE4m3Fnuz) == 240.0f);
  CHECK(fp8::max_value(Format::kE5m2) == 57344.0f);
}
