#pragma once

#include <cstdint>
#include <future>

#include "forward/packed_layer.h"
#include "stored/layer_bytes.h"

namespace kvcal {

/// Brings the layers of a calibration, one packed layer at a time, and has the system read the next
/// one's bytes meanwhile. Where the backend packs beside
/// its operations, the next one is packed in another thread while this one computes, so that two
/// are in memory. Borrows all it is given; its end waits for the other threads.
class LayerPrefetch {
 public:
  /// bytes: how layers come; null: from the mapped files.
  LayerPrefetch(const Weights& weights, const ModelConfig& config, Backend& backend,
                ComputeType type, LayerBytes* bytes = nullptr)
      : weights_(weights),
        config_(config),
        backend_(backend),
        type_(type),
        mapped_(weights),
        bytes_(bytes ? *bytes : mapped_) {}

  /// The layer, with at least these parts; valid until the next call. Throws what packing it threw.
  const PackedLayer& bring(int64_t layer, LayerParts parts);
  /// Packs all layers whole, the model's last one too; call it before the first is brought. Without
  /// it the last layer is the last that attends, and only its K and V are packed, Q where wanted.
  void expect_all_layers() { expects_all_layers_ = true; }
  void expect_queries() { last_parts_ = LayerParts::kAll; }
  /// The layer brought last; -1: none.
  int64_t index() const { return index_; }

  /// Layers in memory at one time.
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
  bool expects_all_layers_ = false;
  LayerParts last_parts_ = LayerParts::kKeyValue;  ///< of the last layer that attends
  int64_t index_ = -1;
  LayerParts parts_ = LayerParts::kKeyValue;
  int64_t coming_index_ = -1;
  LayerParts coming_parts_ = LayerParts::kKeyValue;
  std::future<void> reading_;        ///< the next layer's bytes; pack's own
  std::future<PackedLayer> coming_;  ///< its destructor waits
};

}  // namespace kvcal
