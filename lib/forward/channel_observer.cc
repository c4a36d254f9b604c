#include "forward/channel_observer.h"

#include <algorithm>
#include <cmath>

namespace kvcal {

ChannelObserver::ChannelObserver(Backend& backend, const LayerCache& cache) : backend_(backend) {
  seen_.k.resize(static_cast<size_t>(cache.heads * cache.k_dim), 0.0f);
  seen_.v.resize(static_cast<size_t>(cache.heads * cache.v_dim), 0.0f);
}

void ChannelObserver::see(const void* k, const void* v, int64_t rows,
                          std::span<const Segment> segments) {
  see_side(k, rows, segments, seen_.k);
  see_side(v, rows, segments, seen_.v);
}

// A channel is observed as a head of one dimension.
void ChannelObserver::see_side(const void* x, int64_t rows, std::span<const Segment> segments,
                               std::vector<float>& magnitudes) {
  const size_t bytes = segments.size() * magnitudes.size() * sizeof(ObservedRange);
  if (bytes == 0) return;
  if (ranges_.size() < bytes) ranges_ = backend_.allocate(bytes);
  const auto channels = static_cast<int64_t>(magnitudes.size());
  backend_.observe_kv({.x = {.data = static_cast<float*>(const_cast<void*>(x)),
                             .tokens = rows,
                             .heads = channels,
                             .head_dim = 1,
                             .row_stride = channels},
                       .segments = segments,
                       .ranges = ranges_.as<ObservedRange>()});
  std::vector<ObservedRange> ranges(bytes / sizeof(ObservedRange));
  backend_.copy_out(ranges_.data(), std::as_writable_bytes(std::span(ranges)));
  for (size_t i = 0; i < ranges.size(); ++i) {
    float& most = magnitudes[i % magnitudes.size()];
    if (ranges[i].min <= ranges[i].max)
      most = std::max({most, std::fabs(ranges[i].min), std::fabs(ranges[i].max)});
  }
}

}  // namespace kvcal
