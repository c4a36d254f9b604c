#include "quant/half.h"

#include "expected_codes.h"
#include "support/catch.h"

#include <cmath>

using namespace kvcal;

// The conversions run at compile time.
static_assert(to_f16(1.0f).bits == 0x3c00 && to_bf16(1.0f).bits == 0x3f80);
static_assert(to_f16(65519.996f).bits == 0x7bff && to_f16(65520.0f).bits == 0x7c00);
static_assert(to_float(F16{0x0001}) == 0x1p-24f && to_float(BF16{0x0001}) == 0x1p-133f);

TEST_CASE("half: all 65,536 F16 patterns decode as numpy does") {
  const auto expected = test::read_expected<float>("f16.f32");
  REQUIRE(expected.size() == 65536);
  test::Mismatches mismatches;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float found = to_float(F16{static_cast<uint16_t>(bits)});
    if (std::isnan(expected[bits]))
      mismatches.compare(bits, bits_of(found), bits_of(expected[bits]) | 0x400000u);
    else
      mismatches.compare(bits, bits_of(found), bits_of(expected[bits]));
  }
  CHECK(mismatches.text() == "");
}

TEST_CASE("half: every 16-bit pattern survives the way through float32") {
  test::Mismatches f16, bf16;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const F16 half{static_cast<uint16_t>(bits)};
    const BF16 brain{static_cast<uint16_t>(bits)};
    const bool f16_nan = (bits & 0x7fffu) > 0x7c00u, bf16_nan = (bits & 0x7fffu) > 0x7f80u;
    f16.compare(bits, to_f16(to_float(half)).bits, f16_nan ? (bits & 0x8000u) | 0x7e00u : bits);
    bf16.compare(bits, to_bf16(to_float(brain)).bits, bf16_nan ? (bits & 0x8000u) | 0x7fc0u : bits);
    bf16.compare(bits, bits_of(to_float(brain)), bits << 16);
  }
  CHECK(f16.text() == "");
  CHECK(bf16.text() == "");
}

namespace {

#pragma pack(push, 1)
struct Record {
  uint32_t bits;
  uint16_t f16, bf16;
  std::array<uint8_t, 3> code;
};
#pragma pack(pop)

}  // namespace

TEST_CASE("half, fp8: a systematic set of float32 rounds as numpy, ml_dtypes and torch round it") {
  const auto records = test::read_expected<Record>("float32.bin");
  REQUIRE(records.size() > 20000);
  test::Mismatches f16, bf16, codes;
  for (const Record& record : records) {
    const float value = float_of(record.bits);
    f16.compare(record.bits, to_f16(value).bits, record.f16);
    bf16.compare(record.bits, to_bf16(value).bits, record.bf16);
    for (size_t f = 0; f < test::kFormats.size(); ++f)
      codes.compare(record.bits, fp8::encode(value, test::kFormats[f]), record.code[f]);
  }
  CHECK(f16.text() == "");
  CHECK(bf16.text() == "");
  CHECK(codes.text() == "");
}
