#include "quant/range_search.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/json.h"
#include "expected_codes.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;

namespace {

/// reference/quant_histograms.py makes the file.
Json cases() {
  return parse_json(read_text(test::tests_folder().string() + "/fixtures/quant/histograms.json"));
}

MagnitudeHistogram histogram_of(const Json& counts) {
  MagnitudeHistogram histogram;
  for (const auto& [bin, count] : counts.items())
    histogram.counts[std::stoul(bin)] = count.get<uint64_t>();
  return histogram;
}

fp8::Format format_of(const Json& name) {
  for (const fp8::Format format : test::kFormats)
    if (fp8::name_of(format) == "float8_" + name.get<std::string>()) return format;
  FAIL("no format " << name);
  return fp8::Format::kE4m3Fn;
}

MagnitudeHistogram of_values(std::initializer_list<float> values) {
  MagnitudeHistogram histogram;
  for (const float value : values)
    ++histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(value))];
  return histogram;
}

}  // namespace

TEST_CASE("histogram_search: percentile, mse and entropy are the reference's") {
  int percentiles = 0, searches = 0, entropies = 0;
  for (const Json& one : cases()) {
    const MagnitudeHistogram histogram = histogram_of(one["counts"]);
    const Amax largest{one["largest"].get<float>()};
    for (const Json& expected : one["percentile"]) {
      INFO(one["name"] << ", percentile " << expected.dump());
      CHECK(percentile_amax(histogram, largest, expected[0].get<double>()).value ==
            Approx(expected[1].get<double>()).epsilon(1e-6));
      ++percentiles;
    }
    for (const Json& expected : one["mse"]) {
      INFO(one["name"] << ", mse " << expected.dump());
      CHECK(mse_amax(histogram, largest, format_of(expected["format"]),
                     mse_options(expected["options"]))
                .value == expected["amax"].get<float>());
      ++searches;
    }
    for (const Json& expected : one["entropy"]) {
      INFO(one["name"] << ", entropy " << expected.dump());
      CHECK(entropy_amax(histogram, largest, format_of(expected["format"])).value ==
            expected["amax"].get<float>());
      ++entropies;
    }
  }
  CHECK(percentiles == 17 * 6);
  CHECK(searches == 17 * 9);
  CHECK(entropies == 48);
}

TEST_CASE("histogram_search: a percentile grows with the percentage and ends at the largest") {
  for (const Json& one : cases()) {
    const MagnitudeHistogram histogram = histogram_of(one["counts"]);
    const Amax largest{one["largest"].get<float>()};
    const bool has_zeros = histogram.counts[0] > 0;
    float before = 0;
    for (int tenth = 1; tenth <= 1000 && !has_zeros; ++tenth) {
      const float found = percentile_amax(histogram, largest, tenth / 10.0).value;
      INFO(one["name"] << ", " << tenth / 10.0 << " %");
      if (found < before || found > largest.value) CHECK(found == before);
      before = found;
    }
    CHECK(percentile_amax(histogram, largest, 100).value == largest.value);
  }
}

TEST_CASE("histogram_search: what is no histogram of the largest magnitude is refused") {
  const auto message = [](const MagnitudeHistogram& histogram, float largest) {
    try {
      percentile_amax(histogram, {largest}, 99);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  CHECK(message({}, 1.0f) == "a histogram without counts, expected what was observed");
  const std::string expected = ", which is not in the highest bin with a count, from 2";
  const MagnitudeHistogram histogram = of_values({0.5f, 2.0f});
  CHECK(message(histogram, 1.0f) == "the largest magnitude is 1" + expected);
  CHECK(message(histogram, 3.0f) == "the largest magnitude is 3" + expected);
  CHECK(message(histogram, std::numeric_limits<float>::infinity()) ==
        "the largest magnitude is inf" + expected);
  CHECK(message(histogram, 2.1f).empty());
  CHECK_THROWS_AS(mse_amax(histogram, {1.0f}, fp8::Format::kE5m2, {}), Error);
  CHECK_THROWS_AS(entropy_amax(histogram, {1.0f}, fp8::Format::kE5m2), Error);
  for (const double percent : {0.0, -1.0, 100.1, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_AS(percentile_amax(histogram, {2.0f}, percent), Error);
}

TEST_CASE("histogram_search: the errors of a scale are those of the values themselves") {
  // A sum of twelve uniform values is nearly normal; the generator is Knuth's.
  uint64_t state = 9;
  const auto uniform = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) * 0x1p-53;
  };
  std::vector<float> values(200000);
  for (float& value : values) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    value = static_cast<float>(sum);
  }
  for (const float size : {0.002f, 1.0f, 200.0f})
    for (const fp8::Format format : test::kFormats)
      for (const float scale : {1.0f, 0.01f}) {
        INFO("standard deviation " << size << ", scale " << scale << ", " << fp8::name_of(format));
        MagnitudeHistogram histogram;
        float largest = 0;
        CodeErrors wanted{.values = static_cast<double>(values.size())};
        for (const float one : values) {
          const float x = std::fabs(one * size), most = scale * fp8::max_value(format);
          const float coded = scale * fp8::decode(fp8::encode(x / scale, format), format);
          ++histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(x))];
          largest = std::max(largest, x);
          wanted.clipped += x > most ? 1 : 0;
          wanted.to_zero += coded == 0.0f && x >= 0x1p-24f ? 1 : 0;
          wanted.squared += static_cast<double>(x * x);
          wanted.squared_error += static_cast<double>((x - coded) * (x - coded));
        }
        const CodeErrors found = code_errors(histogram, {largest}, {scale}, format);
        const double all = wanted.values;
        CHECK(found.values == all);
        CHECK(found.clipped / all == Approx(wanted.clipped / all).margin(0.001));
        CHECK(found.to_zero / all == Approx(wanted.to_zero / all).margin(0.002));
        CHECK(found.relative_error() == Approx(wanted.relative_error()).epsilon(0.05));
      }
}

TEST_CASE("histogram_search: nothing is clipped by the scale of the largest value") {
  const CodeErrors errors =
      code_errors(of_values({448.0f, 3.0f, 0.0f}), {448.0f}, {1.0f}, fp8::Format::kE4m3Fn);
  CHECK(errors.clipped == 0);
  CHECK(errors.values == 3);
  CHECK(code_errors(of_values({0.0f}), {0.0f}, {1.0f}, fp8::Format::kE4m3Fn).relative_error() == 0);
}
