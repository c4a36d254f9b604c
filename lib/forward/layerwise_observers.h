#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "forward/channel_observer.h"
#include "forward/layerwise.h"

namespace kvcal {

/// Observation buffers of one pass over a layer, in backend memory until the pass ends.
struct LayerwiseForward::Observers {
  /// pieces_of: of K and V, borrowed. query_heads: 0 where Q is not observed.
  Observers(Backend& backend, const PositionPieces& pieces_of, int64_t samples, int64_t heads,
            int64_t query_heads)
      : pieces(pieces_of), k(backend, pieces.count(), heads), v(backend, pieces.count(), heads) {
    if (query_heads > 0) q.emplace(backend, static_cast<size_t>(samples), query_heads);
  }
  /// Has the channels of the cache observed, too, in passes whose storage is float32.
  void observe_channels(Backend& backend, const LayerCache& cache, int64_t key_rows) {
    channels.emplace(backend, cache, key_rows);
  }
  struct Side {
    Side(Backend& backend, size_t rows, int64_t num_heads)
        : heads(static_cast<size_t>(num_heads)),
          ranges(backend.allocate(rows * heads * sizeof(ObservedRange))),
          histogram(backend.allocate(heads * sizeof(MagnitudeHistogram))) {
      backend.fill_zero(histogram.data(), histogram.size());
    }
    ObservedRange* ranges_from(size_t row) const {
      return ranges.as<ObservedRange>() + row * heads;
    }
    /// ranges as they are: [rows, heads].
    KvObservation take(Backend& backend) const {
      KvObservation result;
      result.ranges.resize(ranges.size() / sizeof(ObservedRange));
      result.histograms.resize(heads);
      backend.copy_out(ranges.data(), std::as_writable_bytes(std::span(result.ranges)));
      backend.copy_out(histogram.data(), std::as_writable_bytes(std::span(result.histograms)));
      return result;
    }
    size_t heads;
    Buffer ranges, histogram;
  };

  /// Adds the observation of the batch to the cache pass.
  void join(EnterCacheArgs& args, size_t batch) const {
    args.segments = pieces.segments(batch);
    args.k.ranges = k.ranges_from(pieces.first(batch));
    args.k.histogram = k.histogram.as<uint64_t>();
    args.v.ranges = v.ranges_from(pieces.first(batch));
    args.v.histogram = v.histogram.as<uint64_t>();
  }
  SeenQueries queries(const SampleBatch& batch) const {
    if (!q) return {};
    return {q->ranges_from(static_cast<size_t>(batch.first_sample)), q->histogram.as<uint64_t>()};
  }
  /// Ranges of a batch of which no token runs.
  void clear(Backend& backend, const SampleBatch& batch) {
    if (channels) channels->see_none(batch.tokens.segments.size());
    if (!q) return;
    const std::vector<ObservedRange> none(q->heads * batch.tokens.segments.size(), kEmptyRange);
    backend.copy_in(
        std::as_bytes(std::span(none)),
        reinterpret_cast<std::byte*>(q->ranges_from(static_cast<size_t>(batch.first_sample))));
  }
  LayerObservation take(Backend& backend) {
    const auto folded = [&](const Side& side) {
      KvObservation seen = side.take(backend);
      pieces.fold(std::exchange(seen.ranges, {}), side.heads, seen);
      return seen;
    };
    LayerObservation seen{.k = folded(k), .v = folded(v)};
    if (q) seen.q = q->take(backend);
    if (channels) {
      seen.key_rows = channels->take_key_rows();
      seen.channels = channels->take();
    }
    return seen;
  }

  const PositionPieces& pieces;
  Side k, v;
  std::optional<Side> q;
  std::optional<ChannelObserver> channels;
};

}  // namespace kvcal
