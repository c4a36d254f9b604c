#include "forward/channel_observer.h"

#include <algorithm>
#include <cmath>

namespace kvcal {

ChannelObserver::ChannelObserver(Backend& backend, const LayerCache& cache, int64_t key_rows)
    : backend_(backend), rows_of_sample_(key_rows) {
  seen_.k.resize(static_cast<size_t>(cache.heads * cache.k_dim), 0.0f);
  seen_.v.resize(static_cast<size_t>(cache.heads * cache.v_dim), 0.0f);
}

void ChannelObserver::see_keys(const HeadsView& k, std::span<const Segment> segments) {
  if (rows_of_sample_ == 0) return;
  for (const Segment& sample : segments)
    keep_rows(k.data, k.row_stride, sample, key_rows_.emplace_back().before);
}

void ChannelObserver::see(const void* k, const void* v, int64_t rows,
                          std::span<const Segment> segments) {
  if (rows_of_sample_ > 0)
    for (size_t i = 0; i < segments.size(); ++i)
      keep_rows(static_cast<const float*>(k), static_cast<int64_t>(seen_.k.size()), segments[i],
                key_rows_[key_rows_.size() - segments.size() + i].cached);
  see_side(k, rows, segments, seen_.k);
  see_side(v, rows, segments, seen_.v);
}

// A row of each of so many equal parts, at places in them that follow the golden ratio: with the
// same distance everywhere, pairs that turn as fast would all show the same angle.
void ChannelObserver::keep_rows(const float* x, int64_t stride, const Segment& sample,
                                std::vector<float>& rows) {
  constexpr double kGolden = 0.6180339887498949;
  const auto length = static_cast<int64_t>(sample.q_count);
  const int64_t count = std::min(rows_of_sample_, length);
  const size_t width = seen_.k.size();
  rows.resize(static_cast<size_t>(count) * width);
  for (int64_t i = 0; i < count; ++i) {
    const double share = std::fmod(static_cast<double>(i + 1) * kGolden, 1.0);
    const auto token =
        static_cast<int64_t>((static_cast<double>(i) + share) * static_cast<double>(length) /
                             static_cast<double>(count));
    const float* row =
        x + (static_cast<int64_t>(sample.q_begin) + std::min(token, length - 1)) * stride;
    backend_.copy_out(
        reinterpret_cast<const std::byte*>(row),
        std::as_writable_bytes(std::span(rows).subspan(static_cast<size_t>(i) * width, width)));
  }
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
