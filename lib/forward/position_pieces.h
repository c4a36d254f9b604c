#pragma once

#include <span>
#include <vector>

#include "forward/layer_forward.h"

namespace kvcal {

/// The samples of a pass, cut where buckets of positions begin, so that one observation of K and V
/// gives their extremes by sample and by position.
class PositionPieces {
 public:
  /// Appends a batch, whose segments are samples from their first token on. Segments may be empty.
  void add_batch(std::span<const Segment> samples);

  /// Segments of a batch's pieces.
  std::span<const Segment> segments(size_t batch) const;
  /// Row of a batch's first piece in the ranges of all pieces.
  size_t first(size_t batch) const { return firsts_[batch]; }
  size_t count() const { return segments_.size(); }

  /// Ranges [samples, heads] and by position, from ranges of pieces [count(), heads].
  void fold(std::span<const ObservedRange> pieces, size_t heads, KvObservation& seen) const;

 private:
  struct Piece {
    size_t sample = 0, bucket = 0;
    int64_t position = 0;  ///< of its first token
  };
  size_t num_samples_ = 0;
  std::vector<size_t> firsts_;  ///< [batches]
  std::vector<Segment> segments_;
  std::vector<Piece> pieces_;
};

}  // namespace kvcal
