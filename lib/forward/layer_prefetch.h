#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <vector>

#include "forward/layer_forward.h"
#include "forward/packed_layer.h"
#include "stored/weights.h"

namespace kvcal {

/// Provides the packed layers of a calibration one at a time, for all backends that run it, while
/// the system reads the bytes of the next layer. Where the backends can pack beside their
/// operations, another thread packs the next layer meanwhile, and two layers are in memory. Borrows
/// its arguments; the destructor waits for the other threads.
class LayerPrefetch {
 public:
  /// backends: at least one, all of one kind. bytes: source of the layers' bytes; null: the mapped
  /// files. Packs no layer behind the last that the request observes, and of that one only the
  /// parts that it needs.
  LayerPrefetch(const Weights& weights, const ModelConfig& config,
                std::span<Backend* const> backends, ComputeType type, LayerBytes* bytes = nullptr,
                const ObservationRequest& request = {});

  /// Packs the layer with at least these parts; by backend, valid until the next call. Call while
  /// no backend runs operations of the layer before. Rethrows errors of packing.
  std::span<const PackedLayer> bring(int64_t layer, LayerParts parts);
  /// Index of the current layer; -1: none.
  int64_t index() const { return index_; }

  /// Number of layers in memory at one time.
  static int64_t layers_held(const Backend& backend) { return backend.packs_beside() ? 2 : 1; }

 private:
  std::vector<PackedLayer> pack(int64_t layer, LayerParts parts);
  void start_next();

  const Weights& weights_;
  const ModelConfig& config_;
  std::unique_ptr<PackGroup> group_;
  ComputeType type_;
  MappedLayers mapped_;
  LayerBytes& bytes_;
  std::vector<PackedLayer> packed_;
  int64_t last_;
  LayerParts last_parts_;  ///< of the last layer
  int64_t index_ = -1;
  LayerParts parts_ = LayerParts::kKeyValue;
  int64_t coming_index_ = -1;
  LayerParts coming_parts_ = LayerParts::kKeyValue;
  std::future<void> reading_;                     ///< for the next layer's bytes; only pack uses it
  std::future<std::vector<PackedLayer>> coming_;  ///< its destructor waits
};

}  // namespace kvcal
