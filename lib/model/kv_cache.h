#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "model/architecture.h"
#include "model/layer_runner.h"
#include "quant/kv_dtype.h"
#include "quant/scale.h"

namespace kvcal {

/// Scales of one layer's cache: one value, or one a KV head. An ignored layer has none and keeps an
/// unquantized cache.
struct LayerKvScales {
  std::vector<Scale> k, v;
  bool ignored = false;
  /// Of queries that attention reads in FP8 E4M3, as the cache is: one value, or one an attention
  /// head; empty: they are not quantized.
  std::vector<Scale> q = {};
};

/// How a model's cache is stored where it is not quantized: as its weights' dtype.
KvDType unquantized_cache_dtype(const ModelConfig& config);

/// What the layers keep of one sequence: K and V, stored as dtype, and the states of recurrent
/// layers. FP8 caches need a scale for every layer that is not ignored.
class KvCache {
 public:
  /// scales: one entry a layer for FP8, ignored otherwise. Throws Error if a layer has none.
  KvCache(const ModelConfig& config, Backend& backend, KvDType dtype,
          const std::vector<LayerKvScales>& scales, int64_t capacity);

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  /// Of all layers but ignored ones.
  KvDType dtype() const { return dtype_; }
  /// Forgets the sequence.
  void clear();
  /// Turns the new tokens' K and stores K and V of a layer behind the ones it holds.
  /// first_row: in backend memory, where their first row is read from when this runs; null:
  /// length().
  void append(int64_t layer, const LayerRunner::KeysValues& kv, const int64_t* first_row = nullptr);
  /// Of a recurrent layer, float32.
  RecurrentState& state(int64_t layer) { return layers_[static_cast<size_t>(layer)].state; }
  /// The layer's whole storage, for attention.
  KvStorage storage(int64_t layer) const;
  /// Addresses and dtypes of all it stores: where they are equal, operations recorded on one cache
  /// hold for the other.
  std::vector<uintptr_t> places() const;
  /// Makes count appended tokens part of the sequence, once all layers have them.
  void advance(int64_t count);

 private:
  struct Layer {
    KvDType dtype{};
    size_t k_row_bytes = 0, v_row_bytes = 0;
    Buffer k, v, k_scales, v_scales, q_scales;
    RecurrentState state;
  };

  Backend& backend_;
  KvDType dtype_;
  int64_t capacity_ = 0, length_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace kvcal
