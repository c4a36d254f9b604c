#include <cmath>
#include <limits>
#include <optional>

#include "quant/observations.h"
#include "support/every_backend.h"
#include "support/near.h"

namespace kvcal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Rows {
  std::vector<float> values;  ///< [rows, width]
  int64_t rows = 0, width = 0;
  ComputeType type = ComputeType::kFloat32;
};

struct Observed {
  std::vector<float> extremes;
  std::vector<int32_t> first_nonfinite;
  std::vector<uint64_t> histogram;
  bool operator==(const Observed& other) const {
    return test::same_bytes(extremes, other.extremes) && first_nonfinite == other.first_nonfinite &&
           histogram == other.histogram;
  }
};

/// Without segments there is one of all rows.
Observed observe(Backend& backend, const Rows& of, std::vector<Segment> segments = {},
                 bool has_histogram = true) {
  if (segments.empty()) segments = {{.q_begin = 0, .q_count = of.rows}};
  const test::OnBackend<std::byte> x(backend, test::to_elements(of.values, of.type));
  const test::OnBackend<ObservedRange> ranges(backend, std::vector<ObservedRange>(segments.size()));
  const test::OnBackend<uint64_t> histogram(backend,
                                            std::vector<uint64_t>(MagnitudeHistogram::kBins, 2));
  backend.observe_rows({.x = x.data(),
                        .type = of.type,
                        .rows = of.rows,
                        .width = of.width,
                        .segments = segments,
                        .ranges = ranges.data(),
                        .histogram = has_histogram ? histogram.data() : nullptr});
  Observed observed{.extremes = {}, .first_nonfinite = {}, .histogram = histogram.values()};
  for (const ObservedRange& range : ranges.values()) {
    observed.extremes.push_back(range.min);
    observed.extremes.push_back(range.max);
    observed.first_nonfinite.push_back(range.first_nonfinite);
  }
  return observed;
}

constexpr ComputeType kTypes[] = {ComputeType::kFloat32, ComputeType::kFloat16,
                                  ComputeType::kBFloat16};

TEST_CASE("observe_rows: every backend sees the reference's extremes and bins, in any shape") {
  const auto reference = test::make_backend("reference");
  // Parts of rows, whole rows, more than a part's values; widths that no vector divides.
  const std::vector<std::pair<int64_t, int64_t>> shapes{
      {400, 80}, {33, 7}, {3, 1}, {5, 16384}, {2, 16385}, {3, 40001}, {70, 576}};
  for (const auto& [rows, width] : shapes) {
    const std::vector<Segment> segments{{.q_begin = 0, .q_count = rows / 3},
                                        {.q_begin = rows / 3, .q_count = 0},
                                        {.q_begin = rows / 3, .q_count = 1},
                                        {.q_begin = rows / 3 + 1, .q_count = rows - rows / 3 - 1}};
    for (const ComputeType type : kTypes)
      for (const bool has_segments : {false, true}) {
        const Rows x{test::normal(rows * width, 3, 20.0f), rows, width, type};
        const auto cut = has_segments ? segments : std::vector<Segment>{};
        const Observed expected = observe(*reference, x, cut);
        test::for_each_backend([&](Backend& backend) {
          INFO(rows << " rows of " << width << " in " << name_of(type));
          const bool same = observe(backend, x, cut) == expected;
          CHECK(same);
        });
      }
  }
}

TEST_CASE("observe_rows: finite values of every magnitude are counted as the reference does") {
  constexpr int64_t kRows = 61, kWidth = 333;
  const auto reference = test::make_backend("reference");
  // Octaves that the magnitudes spread over, and the one they begin at.
  for (const auto& [octaves, first] :
       {std::pair{250, -140}, {60, -30}, {30, -20}, {16, 0}, {3, 5}, {1, -60}, {2, 60}}) {
    auto values = test::normal(kRows * kWidth, 4);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] =
          i % 11 == 0 ? -0.0f : std::ldexp(values[i], first + static_cast<int>(i) % octaves);
    for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
      const Rows x{values, kRows, kWidth, type};
      const Observed expected = observe(*reference, x);
      test::for_each_backend([&](Backend& backend) {
        INFO(octaves << " octaves from " << first << " in " << name_of(type));
        const bool same = observe(backend, x) == expected;
        CHECK(same);
      });
    }
  }
}

TEST_CASE("observe_rows: what the reference sees is what the values are") {
  const auto backend = test::make_backend("reference");
  const Rows x{{-0.0f, 1, -2.0f, 0.5f, 3, 0.25f}, 3, 2};
  const Observed seen =
      observe(*backend, x, {{.q_begin = 0, .q_count = 1}, {.q_begin = 1, .q_count = 2}});
  CHECK(test::same_bytes(seen.extremes, std::vector<float>{0.0f, 1.0f, -2.0f, 3.0f}));
  CHECK(seen.first_nonfinite == std::vector<int32_t>{-1, -1});
  uint64_t total = 0;
  for (const uint64_t count : seen.histogram) total += count - 2;
  CHECK(total == 6);
  for (const float value : {0.0f, 1.0f, 2.0f, 0.5f, 3.0f, 0.25f})
    CHECK(seen.histogram[static_cast<size_t>(MagnitudeHistogram::bin_of(value))] == 2 + 1);
}

TEST_CASE("observe_rows: NaN and infinity are told by row and stay out of range and histogram") {
  // Short rows and long ones, which go through in parts.
  for (const int64_t width : {2, 40000})
    for (const ComputeType type : kTypes) {
      std::vector<float> values(static_cast<size_t>(4 * width), 0.5f);
      const auto at = [&](int64_t row, int64_t i) -> float& {
        return values[static_cast<size_t>(row * width + i)];
      };
      at(0, width - 1) = -2.0f;
      at(1, width - 1) = kNan;
      at(2, 0) = kInfinity;
      at(2, 1) = 3.0f;
      at(3, 0) = -kInfinity;
      at(3, 1) = 4.0f;
      const Rows x{values, 4, width, type};
      test::for_each_backend([&](Backend& backend) {
        INFO(width << " in " << name_of(type));
        const Observed seen =
            observe(backend, x, {{.q_begin = 0, .q_count = 3}, {.q_begin = 3, .q_count = 1}});
        CHECK(seen.extremes == std::vector<float>{-2.0f, 3.0f, width == 2 ? 4.0f : 0.5f, 4.0f});
        CHECK(seen.first_nonfinite == std::vector<int32_t>{1, 0});
        uint64_t total = 0;
        for (const uint64_t count : seen.histogram) total += count - 2;
        CHECK(total == static_cast<uint64_t>(4 * width - 3));

        const Observed bad = observe(backend, {{kNan, kInfinity}, 1, 2, type});
        CHECK(bad.extremes == std::vector<float>{kInfinity, -kInfinity});
        CHECK(bad.first_nonfinite == std::vector<int32_t>{0});
      });
    }
}

TEST_CASE("observe_rows: without a histogram the ranges are the same") {
  for (const ComputeType type : kTypes) {
    const Rows x{test::normal(97 * 300, 8, 20.0f), 97, 300, type};
    const std::vector<Segment> segments{{.q_begin = 5, .q_count = 40},
                                        {.q_begin = 50, .q_count = 47}};
    test::for_each_backend([&](Backend& backend) {
      const Observed with = observe(backend, x, segments),
                     without = observe(backend, x, segments, false);
      CHECK(test::same_bytes(with.extremes, without.extremes));
      CHECK(without.histogram == std::vector<uint64_t>(MagnitudeHistogram::kBins, 2));
    });
  }
}

}  // namespace
}  // namespace kvcal
