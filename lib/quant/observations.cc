#include "quant/observations.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvcal {

uint64_t OctaveCounts::total() const {
  return std::accumulate(counts.begin(), counts.end(), zeros);
}

double OctaveCounts::edge(size_t i) const {
  const double octave = std::ldexp(1.0, first_octave + static_cast<int>(i / 2));
  return i % 2 == 0 ? octave : 1.5 * octave;
}

OctaveCounts octave_counts(std::span<const MagnitudeHistogram> heads) {
  constexpr size_t kBinsPerHalf = MagnitudeHistogram::kBinsPerOctave / 2;
  OctaveCounts sum{.zeros = 0,
                   .first_octave = MagnitudeHistogram::kMinExponent,
                   .counts = std::vector<uint64_t>(MagnitudeHistogram::kBins / kBinsPerHalf)};
  for (const MagnitudeHistogram& head : heads) {
    sum.zeros += head.counts[0];
    for (size_t bin = 1; bin < head.counts.size(); ++bin)
      sum.counts[bin / kBinsPerHalf] += head.counts[bin];
  }
  std::vector<uint64_t>& counts = sum.counts;
  while (!counts.empty() && counts.back() == 0) counts.pop_back();
  const auto first = std::ranges::find_if(counts, [](uint64_t count) { return count != 0; });
  const auto empty_octaves = (first - counts.begin()) / 2;
  counts.erase(counts.begin(), counts.begin() + 2 * empty_octaves);
  sum.first_octave = counts.empty() ? 0 : sum.first_octave + static_cast<int>(empty_octaves);
  return sum;
}

double count_below(const OctaveCounts& counts, double value) {
  if (value <= 0.0) return 0.0;
  auto below = static_cast<double>(counts.zeros);
  for (size_t i = 0; i < counts.counts.size(); ++i) {
    const double from = counts.edge(i), to = counts.edge(i + 1);
    if (value <= from) break;
    below += static_cast<double>(counts.counts[i]) * std::min(1.0, (value - from) / (to - from));
  }
  return below;
}

}  // namespace kvcal
