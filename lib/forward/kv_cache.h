#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "family/architecture.h"
#include "forward/layer_runner.h"
#include "quant/kv_dtype.h"
#include "quant/layer_kv_scales.h"

namespace kvcal {

/// How a model's cache is stored where it is not quantized: as its weights' dtype.
KvDType unquantized_cache_dtype(const ModelConfig& config);

/// K and V of some sequences, each in its slot, for all layers, stored as dtype, and the
/// states of recurrent layers. FP8 caches need a scale for every layer that is not ignored.
class KvCache {
 public:
  /// scales: one entry a layer for FP8, ignored otherwise. capacity: tokens of each sequence.
  /// Throws Error if a layer has none.
  KvCache(const ModelConfig& config, Backend& backend, KvDType dtype,
          const std::vector<LayerKvScales>& scales, int64_t capacity, int64_t slots = 1);
  /// Bytes that one sequence takes. Throws Error as the constructor does.
  static uint64_t bytes_per_slot(const ModelConfig& config, KvDType dtype,
                                 const std::vector<LayerKvScales>& scales, int64_t capacity);

  /// Bytes that K and V of one token take in all layers, as the constructor stores them.
  static uint64_t bytes_per_token(const ModelConfig& config, KvDType dtype,
                                  const std::vector<LayerKvScales>& scales);

  int64_t slots() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t slot = 0) const { return lengths_[static_cast<size_t>(slot)]; }
  int64_t capacity() const { return capacity_; }
  /// The scales of all layers but ignored ones.
  KvDType dtype() const { return dtype_; }
  /// Forgets a slot's sequence.
  void clear(int64_t slot = 0);
  /// Rows [q_begin, q_begin + count) of a batch as the tokens behind a slot's.
  Segment next_segment(int64_t slot, int64_t q_begin, int64_t count) const;
  /// Turns the new tokens' K and stores K and V of a layer in the rows that the batch's segments
  /// end with, or from batch.first_row on.
  void append(int64_t layer, const LayerRunner::KeysValues& kv, const TokenBatch& batch);
  /// The state of a recurrent layer.
  RecurrentState& state(int64_t layer) { return layers_[static_cast<size_t>(layer)].state; }
  /// The layer's whole storage, for attention.
  KvStorage storage(int64_t layer) const;
  /// Addresses and dtypes of all it stores: where they are equal, operations recorded on one cache
  /// hold for the other.
  std::vector<uintptr_t> places() const;
  /// Makes count appended tokens part of a slot's sequence, once all layers have them.
  void advance(int64_t count, int64_t slot = 0);

 private:
  struct Layer {
    KvDType dtype{};
    size_t k_row_bytes = 0, v_row_bytes = 0;
    Buffer k, v, k_scales, v_scales, q_scales;
    RecurrentState state;
  };

  Backend& backend_;
  KvDType dtype_;
  int64_t capacity_ = 0;
  std::vector<int64_t> lengths_;  ///< of each slot's sequence
  std::vector<Layer> layers_;
};

}  // namespace kvcal
