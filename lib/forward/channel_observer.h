#pragma once

#include "backend/backend.h"
#include "family/model_config.h"
#include "forward/layer_forward.h"

namespace kvcal {

/// Folds the largest magnitudes of the channels of one layer's cache over the batches of a pass.
class ChannelObserver {
 public:
  ChannelObserver(Backend& backend, const LayerCache& cache);

  /// k, v: float32 rows of the cache that the segments name, [rows, heads, dim], backend memory.
  /// Waits for the backend.
  void see(const void* k, const void* v, int64_t rows, std::span<const Segment> segments);
  ChannelAmax take() { return std::move(seen_); }

 private:
  void see_side(const void* x, int64_t rows, std::span<const Segment> segments,
                std::vector<float>& magnitudes);

  Backend& backend_;
  Buffer ranges_;
  ChannelAmax seen_;
};

}  // namespace kvcal
