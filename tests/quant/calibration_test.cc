#include "quant/calibration.h"

#include "quant/cache_type.h"
#include "quant/host_device.h"
#include "support/catch.h"

#include <cmath>
#include <limits>

using namespace kvcal;

TEST_CASE("histogram: the edges rise, and each edge opens its own bin") {
  for (int bin = 1; bin < MagnitudeHistogram::kBins; ++bin) {
    INFO("bin " << bin);
    const float edge = MagnitudeHistogram::lower_edge(bin);
    CHECK(edge > MagnitudeHistogram::lower_edge(bin - 1));
    CHECK(MagnitudeHistogram::bin_of(edge) == bin);
    CHECK(MagnitudeHistogram::bin_of(std::nextafter(edge, 0.0f)) == bin - 1);
  }
}

TEST_CASE("histogram: eight equal steps divide an octave") {
  using Histogram = MagnitudeHistogram;
  for (int octave = 0; octave < Histogram::kOctaves; ++octave) {
    const float start = std::ldexp(1.0f, Histogram::kMinExponent + octave);
    for (int step = octave == 0 ? 1 : 0; step < Histogram::kBinsPerOctave; ++step) {
      const float edge = start * (1.0f + static_cast<float>(step) / Histogram::kBinsPerOctave);
      CHECK(Histogram::lower_edge(octave * Histogram::kBinsPerOctave + step) == edge);
    }
  }
}

TEST_CASE("histogram: nothing finite falls outside, and the sign does not count") {
  using Histogram = MagnitudeHistogram;
  CHECK(Histogram::bin_of(0.0f) == 0);
  CHECK(Histogram::bin_of(-0.0f) == 0);
  CHECK(Histogram::bin_of(std::numeric_limits<float>::denorm_min()) == 0);
  CHECK(Histogram::bin_of(0x1p-24f) == 0);
  CHECK(Histogram::lower_edge(0) == 0.0f);
  CHECK(Histogram::bin_of(0x1p24f) == Histogram::kBins - 1);
  CHECK(Histogram::bin_of(std::numeric_limits<float>::max()) == Histogram::kBins - 1);
  int last = 0;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 0x1fff1u) {
    const float magnitude = float_of(bits);
    const int bin = Histogram::bin_of(magnitude);
    REQUIRE(bin >= last);  // monotonic
    REQUIRE(bin < Histogram::kBins);
    REQUIRE(Histogram::bin_of(-magnitude) == bin);
    last = bin;
  }
  CHECK(last == Histogram::kBins - 1);
}

TEST_CASE("statistics: the range of a module is that of all its heads") {
  KvTensorCalibration statistics;
  CHECK(statistics.range().empty());
  CHECK(statistics.range().amax().value == 0.0f);
  statistics.head_ranges = {Range{-1.0f, 2.0f}, Range{}, Range{-7.0f, 0.5f}};
  CHECK(statistics.range().min == -7.0f);
  CHECK(statistics.range().max == 2.0f);
  CHECK(statistics.range().amax().value == 7.0f);
}

TEST_CASE("scale: amax over the largest value, epsilon for zeros") {
  CHECK(scale_from({448.0f}, fp8::Format::kE4m3Fn).value == 1.0f);
  CHECK(scale_from({1.0f}, fp8::Format::kE4m3Fn).value == 1.0f / 448.0f);
  CHECK(scale_from({1.0f}, fp8::Format::kE4m3Fnuz).value == 1.0f / 240.0f);
  CHECK(scale_from({1.0f}, fp8::Format::kE5m2).value == 1.0f / 57344.0f);
  CHECK(scale_from({0.0f}, fp8::Format::kE4m3Fn).value == std::numeric_limits<float>::epsilon());
}

TEST_CASE("scale: of INT8 amax / 127, with codes of -128 to 127, ties to even") {
  constexpr KvFormat kInt8 = KvFormat::int8();
  CHECK(scale_from(Amax{127.0f}, kInt8).value == 1.0f);
  CHECK(scale_from(Amax{0.0f}, kInt8).value == std::numeric_limits<float>::epsilon());
  CHECK(kInt8.nearest(0.5f) == 0.0f);
  CHECK(kInt8.nearest(1.5f) == 2.0f);
  CHECK(kInt8.nearest(-2.5f) == -2.0f);
  CHECK(kInt8.nearest(127.4f) == 127.0f);
  CHECK(kInt8.nearest(400.0f) == 127.0f);
  CHECK(kInt8.nearest(-400.0f) == -128.0f);
  CHECK(kInt8.magnitudes().size() == 128);
  CHECK(name_of(kInt8) == "int8");
  CHECK(cache_type_of(kInt8) == CacheType(CacheFormat::kInt8));
  CHECK(cache_type_of(fp8::Format::kE5m2) == CacheType(KvDType::kFp8E5m2));
  QuantArgs args;
  CHECK(kv_format_of(args, KvDType::kFp8E5m2) == kInt8);  // compressed-tensors' default type
  args.type = QuantType::kFloat;
  CHECK(kv_format_of(args, KvDType::kFp8E5m2) == fp8::Format::kE5m2);
}

TEST_CASE("kv dtype: size, format and name of each") {
  CHECK(bytes_per_element(KvDType::kFloat32) == 4);
  CHECK(bytes_per_element(KvDType::kFloat16) == 2);
  CHECK(bytes_per_element(KvDType::kBFloat16) == 2);
  for (const KvDType dtype : {KvDType::kFp8E4m3, KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2}) {
    CHECK(is_fp8(dtype));
    CHECK(bytes_per_element(dtype) == 1);
  }
  CHECK(fp8_format(KvDType::kFp8E4m3) == fp8::Format::kE4m3Fn);
  CHECK(fp8_format(KvDType::kFp8E4m3Fnuz) == fp8::Format::kE4m3Fnuz);
  CHECK(fp8_format(KvDType::kFp8E5m2) == fp8::Format::kE5m2);
  CHECK(name_of(KvDType::kFp8E4m3Fnuz) == "fp8_e4m3fnuz");
}
