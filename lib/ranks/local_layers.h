#pragma once

#include <map>
#include <mutex>

#include "ranks/layer_extents.h"
#include "ranks/rank_layer_bytes.h"

namespace kvcal {

/// Layers that this rank reads by itself, as a single process does, from files that must be equal
/// on all ranks, so it hashes the bytes it packs. Borrows.
class LocalLayers : public RankLayerBytes {
 public:
  explicit LocalLayers(const Weights& weights) : weights_(weights) {}

  void will_need(int64_t layer) override { weights_.will_need(layer); }
  void bring(int64_t layer) override;
  void drop(int64_t layer) noexcept override { weights_.drop(layer); }
  uint64_t hash(int64_t layer) const override;
  uint64_t bytes_read() const override;

 private:
  const Weights& weights_;
  mutable std::mutex mutex_;
  std::map<int64_t, uint64_t> hashes_;
  uint64_t bytes_read_ = 0;
};

}  // namespace kvcal
