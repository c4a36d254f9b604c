#include "calib/summary/cache_loss.h"

#include <cmath>

#include "support/catch.h"

using namespace kvcal;

namespace {

struct Seen {
  MagnitudeHistogram histogram;
  float largest = 0;
  double mean_square = 0;
};

/// Values of eight normally distributed channels: the first with a deviation of its own.
Seen eight_channels(float first) {
  Seen seen;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  constexpr int kTokens = 4000;
  for (int i = 0; i < kTokens * 8; ++i) {
    const float x = normal(random) * (i % 8 == 0 ? first : 1.0f);
    ++seen.histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(x))];
    seen.largest = std::max(seen.largest, std::fabs(x));
    seen.mean_square += double{x} * double{x} / (kTokens * 8);
  }
  return seen;
}

/// Root of the mean square of a channel's values.
double deviation_of(const ChannelMixture& mixture, int64_t channel, std::mt19937_64& random) {
  constexpr int kDrawn = 2000;
  double sum = 0;
  for (int i = 0; i < kDrawn; ++i) {
    const float x = mixture.draw(channel, random);
    sum += double{x} * double{x} / kDrawn;
  }
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("channel mixture: an outlier is a channel of its own") {
  const Seen seen = eight_channels(64.0f);
  const ChannelMixture mixture(seen.histogram, seen.largest, 8);
  std::mt19937_64 random(1);
  double mean_square = 0;
  for (int64_t channel = 0; channel < 8; ++channel) {
    CAPTURE(channel);
    const double deviation = deviation_of(mixture, channel, random);
    CHECK(std::fabs(std::log2(deviation / (channel == 7 ? 64.0 : 1.0))) < 1.0);
    mean_square += deviation * deviation / 8;
  }
  CHECK(mean_square == Approx(seen.mean_square).epsilon(0.3));
}

TEST_CASE("channel mixture: like channels stay alike, and within the largest magnitude") {
  const Seen seen = eight_channels(1.0f);
  const ChannelMixture mixture(seen.histogram, seen.largest, 8);
  std::mt19937_64 random(1), again(1);
  for (int64_t channel = 0; channel < 8; ++channel) {
    CHECK(std::fabs(std::log2(deviation_of(mixture, channel, random))) < 1.0);
    for (int i = 0; i < 2000; ++i)
      CHECK_FALSE(std::fabs(mixture.draw(channel, again)) > seen.largest);
  }
  CHECK(random == again);
}

TEST_CASE("channel mixture: zeros are drawn as zeros") {
  MagnitudeHistogram histogram;
  histogram.counts[0] = 3;
  histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(1.0f))] = 1;
  const ChannelMixture mixture(histogram, 1.0f, 4);
  std::mt19937_64 random(1);
  int zeros = 0;
  for (int i = 0; i < 1000; ++i)
    for (int64_t channel = 0; channel < 4; ++channel)
      if (mixture.draw(channel, random) == 0.0f) ++zeros;
  CHECK(zeros == Approx(3000).epsilon(0.1));
}
