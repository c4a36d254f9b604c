// The judge's own conversions: halves against the processor's, the others against the definition.
#include "numbers.h"

#include <immintrin.h>

#include <vector>

#include "support/catch.h"

using namespace kvcal::ptx;

namespace {

bool is_same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

/// Calls body for floats of every sign, exponent and many mantissas.
template <class Body>
void for_floats(const Body& body) {
  constexpr uint64_t kStep = 9973;  // no multiple of a power of two
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += kStep)
    body(std::bit_cast<float>(static_cast<uint32_t>(bits)));
}

/// The number of a float that rounds to no nearest code; ties must go to the even one.
template <class Decode>
int wrong_codes(const ByteFormat& format, Decode decode) {
  int wrong = 0;
  for_floats([&](float x) {
    if (std::isnan(x)) return;
    const uint8_t code = code_of(x, format);
    const double limited = std::clamp(double{x}, -double{format.largest}, double{format.largest});
    const double distance = std::fabs(double{decode(code)} - limited);
    for (const int step : {-1, 1}) {
      const int beside = (code & 0x7f) + step;
      if (beside < 0 || beside > format.largest_code) continue;
      const double other =
          std::fabs(double{decode(static_cast<uint8_t>(beside | (code & 0x80)))} - limited);
      if (other < distance || (other == distance && code % 2 != 0)) ++wrong;
    }
    if (std::signbit(x) != ((code & 0x80) != 0)) ++wrong;
  });
  return wrong;
}

}  // namespace

TEST_CASE("judge of PTX: halves are those of the processor") {
  int wrong = 0;
  for (uint32_t half = 0; half <= 0xffff; ++half)
    if (!is_same(float_of_half(static_cast<uint16_t>(half)),
                 _cvtsh_ss(static_cast<uint16_t>(half))))
      ++wrong;
  CHECK(wrong == 0);
  for_floats([&](float x) {
    if (!std::isnan(x) && half_of(x) != _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)) ++wrong;
  });
  CHECK(wrong == 0);
  CHECK(half_of(NAN) == 0x7fff);
}

TEST_CASE("judge of PTX: bfloat16 is the nearest of those beside a float, the even one of two") {
  int wrong = 0;
  for_floats([&](float x) {
    const uint16_t below = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
    if (std::isnan(x) || (below & 0x7fff) >= 0x7f7f) return;  // the next one is infinity
    const double from_below = std::fabs(double{x} - double{float_of_bfloat(below)});
    const double from_above =
        std::fabs(double{float_of_bfloat(static_cast<uint16_t>(below + 1))} - double{x});
    const bool goes_up = from_above < from_below || (from_above == from_below && below % 2 != 0);
    if (bfloat_of(x) != below + (goes_up ? 1 : 0)) ++wrong;
  });
  CHECK(wrong == 0);
  CHECK(bfloat_of(NAN) == 0x7fff);
  CHECK(bfloat_of(3.4e38f) == 0x7f80);
}

TEST_CASE("judge of PTX: FP8 codes are the nearest, the even one of two, and saturate") {
  CHECK(float_of_e4m3(0x7e) == kE4m3.largest);
  CHECK(float_of_e4m3(0x01) == 0x1p-9f);
  CHECK(std::isnan(float_of_e4m3(0x7f)));
  CHECK(float_of_e5m2(0x7b) == kE5m2.largest);
  CHECK(float_of_e5m2(0x01) == 0x1p-16f);
  CHECK(std::isinf(float_of_e5m2(0x7c)));
  CHECK(wrong_codes(kE4m3, float_of_e4m3) == 0);
  CHECK(wrong_codes(kE5m2, float_of_e5m2) == 0);
  CHECK(code_of(INFINITY, kE4m3) == 0x7e);
  CHECK(code_of(NAN, kE4m3) == 0x7f);
}
