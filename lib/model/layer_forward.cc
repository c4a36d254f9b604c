#include "model/layer_forward.h"

namespace kvcal {
namespace {

void merge(KvObservation& seen, const KvObservation& next) {
  seen.ranges.insert(seen.ranges.end(), next.ranges.begin(), next.ranges.end());
  for (size_t head = 0; head < seen.histograms.size(); ++head)
    for (size_t bin = 0; bin < seen.histograms[head].counts.size(); ++bin)
      seen.histograms[head].counts[bin] += next.histograms[head].counts[bin];
}

}  // namespace

void merge(LayerObservation& seen, const LayerObservation& next, SampleCounts samples) {
  merge(seen.k, next.k);
  merge(seen.v, next.v);
  if (seen.q) merge(*seen.q, *next.q);
  merge_linears(seen.linears, next.linears, samples);
}

}  // namespace kvcal
