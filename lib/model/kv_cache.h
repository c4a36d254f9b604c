#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "model/architecture.h"
#include "model/layer_runner.h"
#include "quant/kv_dtype.h"
#include "quant/scale.h"

namespace kvcal {

/// Scales of one layer's cache: one value, or one a KV head.
struct LayerKvScales {
  std::vector<Scale> k, v;
};

/// What the layers keep of one sequence: K and V, stored as dtype, and the states of recurrent
/// layers. FP8 caches need a scale for every layer.
class KvCache {
 public:
  /// scales: one entry a layer for FP8, ignored otherwise. Throws Error if a layer has none.
  KvCache(const ModelConfig& config, Backend& backend, KvDType dtype,
          const std::vector<LayerKvScales>& scales, int64_t capacity);

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  KvDType dtype() const { return dtype_; }
  /// Forgets the sequence.
  void clear();
  /// Stores the new tokens' K and V of a layer behind the ones it holds.
  void append(int64_t layer, const LayerRunner::KeysValues& kv);
  /// Of a recurrent layer, float32.
  RecurrentState& state(int64_t layer) { return layers_[static_cast<size_t>(layer)].state; }
  /// The layer's whole storage, for attention.
  KvStorage storage(int64_t layer) const;
  /// Makes count appended tokens part of the sequence, once all layers have them.
  void advance(int64_t count);

 private:
  struct Layer {
    Buffer k, v, k_scales, v_scales;
    RecurrentState state;
  };

  Backend& backend_;
  KvDType dtype_;
  int64_t capacity_ = 0, length_ = 0;
  size_t k_row_bytes_ = 0, v_row_bytes_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace kvcal
