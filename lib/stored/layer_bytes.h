#pragma once

#include <cstdint>

#include "stored/weights.h"

namespace kvcal {

/// How the bytes of a layer's tensors come where Weights' views look for them. Called by the
/// threads that pack layers, in the order of the layers.
class LayerBytes {
 public:
  virtual ~LayerBytes() = default;
  /// Begins to fetch the layer, where that can be done beside other work. Throws Interrupted.
  virtual void will_need(int64_t layer) = 0;
  /// Returns when the layer's tensors can be read. Throws Error where they cannot be had.
  virtual void bring(int64_t layer) = 0;
  /// The layer is packed, or has failed to be.
  virtual void drop(int64_t layer) noexcept = 0;
};

/// Of the mapped files, as the system reads them. Borrows.
class MappedLayers : public LayerBytes {
 public:
  explicit MappedLayers(const Weights& weights) : weights_(weights) {}
  void will_need(int64_t layer) override { weights_.will_need(layer); }
  void bring(int64_t) override {}
  void drop(int64_t layer) noexcept override { weights_.drop(layer); }

 private:
  const Weights& weights_;
};

}  // namespace kvcal
