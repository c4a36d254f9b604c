#include "quant/observations.h"

#include <vector>

#include "support/catch.h"

using namespace kvcal;

namespace {

MagnitudeHistogram histogram_of(const std::vector<float>& values) {
  MagnitudeHistogram histogram;
  for (const float value : values)
    ++histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(value))];
  return histogram;
}

}  // namespace

TEST_CASE("octave counts: no value is lost, whatever its size") {
  const std::vector<MagnitudeHistogram> heads{
      histogram_of({0.0f, 0x1p-24f, 0x1.2p-24f, 0x1p-130f, 3e38f}), histogram_of({1.0f, 1.75f})};
  const OctaveCounts counts = octave_counts(heads);
  CHECK(counts.total() == 7);
  CHECK(counts.zeros == 3);  // what is below 9/8 of 2^-24
  CHECK(counts.first_octave == -24);
  CHECK(counts.counts.size() == 96);  // the last takes everything above
  CHECK(counts.counts.front() == 1);
  CHECK(counts.counts.back() == 1);
}

TEST_CASE("octave counts: edges are those of equal halves, and counts below them are exact") {
  const std::vector<MagnitudeHistogram> heads{histogram_of({1.25f, 1.6f, 1.7f, 2.0f, 5.0f})};
  const OctaveCounts counts = octave_counts(heads);
  REQUIRE(counts.counts == std::vector<uint64_t>{1, 2, 1, 0, 1});
  CHECK(counts.edge(0) == 1.0);
  CHECK(counts.edge(1) == 1.5);
  CHECK(counts.edge(5) == 6.0);
  CHECK(count_below(counts, 0.0) == 0.0);
  CHECK(count_below(counts, 1.0) == 0.0);
  CHECK(count_below(counts, 1.5) == 1.0);
  CHECK(count_below(counts, 1.75) == 2.0);  // half of [1.5, 2)
  CHECK(count_below(counts, 100.0) == 5.0);
}

TEST_CASE("octave counts: of zeros alone, and of nothing") {
  const std::vector<MagnitudeHistogram> heads{histogram_of({0.0f, 0.0f})};
  const OctaveCounts zeros = octave_counts(heads);
  CHECK(zeros.zeros == 2);
  CHECK(zeros.counts.empty());
  CHECK(count_below(zeros, 1e-9) == 2.0);
  CHECK(octave_counts({}).total() == 0);
}
