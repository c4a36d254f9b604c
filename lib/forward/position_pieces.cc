#include "forward/position_pieces.h"

#include <algorithm>

#include "core/error.h"
#include "quant/position_buckets.h"

namespace kvcal {

void PositionPieces::add_batch(std::span<const Segment> samples) {
  firsts_.push_back(segments_.size());
  for (const Segment& sample : samples) {
    for (int64_t position = 0; position < sample.q_count;) {
      const size_t bucket = position_bucket(position);
      const int64_t count = std::min(first_position(bucket + 1), sample.q_count) - position;
      const int64_t row = sample.q_begin + position;
      segments_.push_back({.q_begin = row, .q_count = count, .kv_begin = row, .kv_count = count});
      pieces_.push_back({.sample = num_samples_, .bucket = bucket, .position = position});
      position += count;
    }
    ++num_samples_;
  }
}

std::span<const Segment> PositionPieces::segments(size_t batch) const {
  const size_t end = batch + 1 < firsts_.size() ? firsts_[batch + 1] : segments_.size();
  return std::span(segments_).subspan(firsts_[batch], end - firsts_[batch]);
}

void PositionPieces::fold(std::span<const ObservedRange> pieces, size_t heads,
                          KvObservation& seen) const {
  KVCAL_CHECK(pieces.size() == pieces_.size() * heads);
  seen.ranges.assign(num_samples_ * heads, kEmptyRange);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (heads > 0 && seen.positions.size() <= piece.bucket) seen.positions.resize(piece.bucket + 1);
    for (size_t head = 0; head < heads; ++head) {
      const ObservedRange& part = pieces[i * heads + head];
      ObservedRange& whole = seen.ranges[piece.sample * heads + head];
      whole.min = std::min(whole.min, part.min);
      whole.max = std::max(whole.max, part.max);
      if (whole.first_nonfinite < 0 && part.first_nonfinite >= 0)
        whole.first_nonfinite = static_cast<int32_t>(piece.position) + part.first_nonfinite;
      seen.positions[piece.bucket].fold({part.min, part.max});
    }
  }
}

}  // namespace kvcal
