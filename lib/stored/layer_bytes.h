#pragma once

#include <cstdint>

#include "stored/weights.h"

namespace kvcal {

/// Source of the bytes that the views of Weights point to. Threads that pack layers call it, in the
/// order of the layers.
class LayerBytes {
 public:
  virtual ~LayerBytes() = default;
  /// Begins to fetch the layer, where that can run beside other work. Throws Interrupted.
  virtual void will_need(int64_t layer) = 0;
  /// Returns when the layer's tensors can be read. Throws Error where they are not available.
  virtual void bring(int64_t layer) = 0;
  /// Ends the use of the layer, packed or failed.
  virtual void drop(int64_t layer) noexcept = 0;
};

/// Reads the mapped files through the system's page cache. Borrows.
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
