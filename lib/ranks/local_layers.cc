#include "ranks/local_layers.h"

namespace kvcal {

void LocalLayers::bring(int64_t layer) {
  const std::lock_guard lock(mutex_);
  if (hashes_.contains(layer)) return;
  hashes_[layer] = layer_hash(weights_, layer);
  bytes_read_ += layer_size(weights_, layer);
}

uint64_t LocalLayers::hash(int64_t layer) const {
  const std::lock_guard lock(mutex_);
  const auto found = hashes_.find(layer);
  return found == hashes_.end() ? 0 : found->second;
}

uint64_t LocalLayers::bytes_read() const {
  const std::lock_guard lock(mutex_);
  return bytes_read_;
}

}  // namespace kvcal
