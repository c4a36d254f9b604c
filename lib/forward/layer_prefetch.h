#pragma once

#include <cstdint>
#include <future>

#include "forward/packed_layer.h"
#include "stored/layer_bytes.h"

namespace kvcal {

/// Provides the packed layers of a calibration one at a time, while the system reads the bytes of
/// the next layer. Where the backend can pack beside its operations, another thread packs the next
/// layer meanwhile, and two layers are in memory. Borrows its arguments; the destructor waits for
/// the other threads.
class LayerPrefetch {
 public:
  /// bytes: source of the layers' bytes; null: the mapped files.
  LayerPrefetch(const Weights& weights, const ModelConfig& config, Backend& backend,
                ComputeType type, LayerBytes* bytes = nullptr)
      : weights_(weights),
        config_(config),
        backend_(backend),
        type_(type),
        mapped_(weights),
        bytes_(bytes ? *bytes : mapped_),
        last_(config.last_cached_layer()) {}

  /// Packs the layer with at least these parts; valid until the next call. Rethrows errors of
  /// packing.
  const PackedLayer& bring(int64_t layer, LayerParts parts);
  /// Packs no layer behind last, and of last only these parts. Call before the first bring. Without
  /// it, packing ends with K and V of the last layer that computes them.
  void expect(int64_t last, LayerParts parts) {
    last_ = last;
    last_parts_ = parts;
  }
  /// Index of the current layer; -1: none.
  int64_t index() const { return index_; }

  /// Number of layers in memory at one time.
  static int64_t layers_held(const Backend& backend) { return backend.packs_beside() ? 2 : 1; }

 private:
  PackedLayer pack(int64_t layer, LayerParts parts);
  void start_next();

  const Weights& weights_;
  const ModelConfig& config_;
  Backend& backend_;
  ComputeType type_;
  MappedLayers mapped_;
  LayerBytes& bytes_;
  PackedLayer packed_;
  int64_t last_;
  LayerParts last_parts_ = LayerParts::kKeyValue;  ///< of the last layer
  int64_t index_ = -1;
  LayerParts parts_ = LayerParts::kKeyValue;
  int64_t coming_index_ = -1;
  LayerParts coming_parts_ = LayerParts::kKeyValue;
  std::future<void> reading_;        ///< for the next layer's bytes; only pack uses it
  std::future<PackedLayer> coming_;  ///< its destructor waits
};

}  // namespace kvcal
