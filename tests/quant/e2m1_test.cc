#include "quant/half.h"

#include <cmath>
#include <limits>
#include <vector>

#include "support/catch.h"

namespace kvcal {

TEST_CASE("E2M1 codes have the values of the OCP table") {
  const std::vector<float> values{0, .5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint8_t code = 0; code < 16; ++code) {
    CHECK(std::fabs(e2m1::decode(code)) == values[code % 8]);
    CHECK(std::signbit(e2m1::decode(code)) == (code >= 8));
    CHECK(e2m1::encode(e2m1::decode(code)) == code);
  }
}

TEST_CASE("E2M1 rounds to the nearest value, ties to even, and saturates") {
  // Values of compressed-tensors 0.20 cast_to_fp4 at, below and above each middle.
  const std::vector<std::pair<float, float>> cases{
      {0.25f, 0},      {0.2500001f, .5f},  {0.7499999f, .5f}, {0.75f, 1}, {1.25f, 1},
      {1.26f, 1.5f},   {1.7499999f, 1.5f}, {1.75f, 2},        {2.5f, 2},  {2.6f, 3},
      {3.4999998f, 3}, {3.5f, 4},          {5.0f, 4},         {5.1f, 6},  {1e30f, 6}};
  for (const auto& [value, rounded] : cases) {
    CHECK(e2m1::decode(e2m1::encode(value)) == rounded);
    CHECK(e2m1::decode(e2m1::encode(-value)) == -rounded);
  }
  CHECK(e2m1::encode(-0.1f) == 8);
  CHECK(e2m1::encode(std::numeric_limits<float>::infinity()) == 7);
}

TEST_CASE("E2M3 codes have the values of the OCP table") {
  // Values of compressed-tensors 0.20.1 `kE2M3ToFloat`.
  const std::vector<float> values{0, .125f,  .25f,  .375f,  .5f,  .625f,  .75f,  .875f,
                                  1, 1.125f, 1.25f, 1.375f, 1.5f, 1.625f, 1.75f, 1.875f,
                                  2, 2.25f,  2.5f,  2.75f,  3,    3.25f,  3.5f,  3.75f,
                                  4, 4.5f,   5,     5.5f,   6,    6.5f,   7,     7.5f};
  REQUIRE(values.size() == 32);
  for (uint8_t code = 0; code < 64; ++code) {
    CHECK(std::fabs(e2m3::decode(code)) == values[code % 32]);
    CHECK(std::signbit(e2m3::decode(code)) == (code >= 32));
  }
}

TEST_CASE("E8M0 codes are powers of two") {
  for (int code = 0; code < 255; ++code) {
    const float value = e8m0::decode(static_cast<uint8_t>(code));
    CHECK(value == std::ldexp(1.0f, code - 127));
  }
  CHECK(std::isnan(e8m0::decode(255)));
}

}  // namespace kvcal
