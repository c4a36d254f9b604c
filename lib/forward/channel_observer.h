#pragma once

#include "backend/backend.h"
#include "family/model_config.h"
#include "forward/layer_forward.h"

namespace kvcal {

/// Folds the largest magnitudes of the channels of one layer's cache over the batches of a pass,
/// and keeps rows of K.
class ChannelObserver {
 public:
  /// key_rows: of each sample, at most.
  ChannelObserver(Backend& backend, const LayerCache& cache, int64_t key_rows);

  /// Keeps rows of K before it enters the cache, whose segments are whole samples. Then call see.
  void see_keys(const HeadsView& k, std::span<const Segment> segments);
  /// k, v: float32 rows of the cache that the segments name, [rows, heads, dim], backend memory.
  /// Waits for the backend.
  void see(const void* k, const void* v, int64_t rows, std::span<const Segment> segments);
  /// In place of both for samples without tokens.
  void see_none(size_t samples) {
    if (rows_of_sample_ > 0) key_rows_.resize(key_rows_.size() + samples);
  }
  ChannelAmax take() { return std::move(seen_); }
  std::vector<KeyRows> take_key_rows() { return std::move(key_rows_); }

 private:
  void see_side(const void* x, int64_t rows, std::span<const Segment> segments,
                std::vector<float>& magnitudes);

  /// Appends the kept ones of rows with this stride, in floats, of one sample.
  void keep_rows(const float* x, int64_t stride, const Segment& sample, std::vector<float>& rows);

  Backend& backend_;
  int64_t rows_of_sample_ = 0;
  std::vector<KeyRows> key_rows_;
  Buffer ranges_;
  ChannelAmax seen_;
};

}  // namespace kvcal
