#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "family/architecture.h"
#include "forward/token_batch.h"
#include "quant/cache_type.h"
#include "quant/scale.h"

namespace kvcal {

/// Dtype of an unquantized cache: that of the model's weights.
KvDType unquantized_cache_dtype(const ModelConfig& config);

/// Rows of K and V of one layer, with the scales of their codes and of the queries that read them.
/// Of a simulated format the rows are float32.
struct KvBuffers {
  /// K or V: [rows, heads, head_dim] of dtype.
  struct Side {
    size_t row_bytes = 0;
    Buffer rows, scales;
    bool scale_per_channel = false;  ///< scales are [heads, head_dim], else [heads]
    Buffer saturated;                ///< [heads], as CacheSide has it; empty: not counted
    void join(CacheSide& args, KvDType dtype, int64_t row) const;
  };
  KvDType dtype = KvDType::kFloat32;
  std::optional<CacheFormat> format = {};
  int64_t rotated = 0;                  ///< dimensions of K that RoPE rotates
  KvDType q_dtype = KvDType::kFp8E4m3;  ///< of queries with scales
  Side k = {}, v = {};
  Buffer q_scales = {}, q_saturated = {};

  void reserve(const LayerCache& cache, int64_t rows, Backend& backend);
  /// Makes the cache pass store its heads, from a row on.
  void join(EnterCacheArgs& args, int64_t row = 0) const {
    k.join(args.k, dtype, row);
    v.join(args.v, dtype, row);
  }
  /// Replaces K, which is rotated, and V by what an engine reads of them from the simulated format.
  void simulate(const HeadsView& keys, const HeadsView& values, Backend& backend) const;
  KvView view() const;
};

/// K and V of several sequences for all layers, as the cache's type has them, and what layers keep
/// beside them. Each sequence has a slot. Types with scales need one for every layer that is
/// not ignored.
class KvCache {
 public:
  /// scales: one entry a layer where the type needs scales, unused otherwise. capacity: tokens of
  /// each sequence. Throws Error where a layer lacks a scale, and where engines have no cache of
  /// the type for the model.
  KvCache(const ModelConfig& config, Backend& backend, const CacheType& type,
          const std::vector<LayerKvScales>& scales, int64_t capacity, int64_t slots = 1);
  /// Bytes of one sequence. Throws Error as the constructor does.
  static uint64_t bytes_per_slot(const ModelConfig& config, const CacheType& type,
                                 const std::vector<LayerKvScales>& scales, int64_t capacity);

  /// Bytes of K and V of one token in all layers, as an engine stores them.
  static uint64_t bytes_per_token(const ModelConfig& config, const CacheType& type,
                                  const std::vector<LayerKvScales>& scales);

  int64_t slots() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t slot = 0) const { return lengths_[static_cast<size_t>(slot)]; }
  int64_t capacity() const { return capacity_; }
  /// Type of all layers that are not ignored.
  const CacheType& type() const { return type_; }
  /// Empties a slot.
  void clear(int64_t slot = 0);
  /// Makes a slot's sequence that of another slot, or of the same, so that two may go on from it.
  void copy(int64_t from, int64_t to) { copy(from, to, length(from)); }
  /// The same of its first tokens, where no layer has states beside K and V.
  void copy(int64_t from, int64_t to, int64_t tokens);
  /// Rotates the new K of a layer, and stores K and V in the last rows of the batch's segments, or
  /// from batch.first_row on.
  void append(int64_t layer, const KeysValues& kv, const TokenBatch& batch);
  /// A layer's states beside K and V; null where it has none.
  const LayerStates* states(int64_t layer) const {
    const LayerStates& states = layers_[static_cast<size_t>(layer)].states;
    return states.slots > 0 ? &states : nullptr;
  }
  /// The layer's whole storage, for attention.
  KvView storage(int64_t layer) const;
  /// Addresses and dtypes of all storage, and scales of softmax weights. Where two caches have
  /// equal places, a recording of one is valid for the other.
  std::vector<uintptr_t> places() const;
  /// Adds appended tokens to a slot's sequence, once all layers hold them.
  void advance(std::span<const TokenId> ids, int64_t slot = 0);
  /// The last tokens of a slot's sequence, as many as n-grams reach back; the separator stands for
  /// those before its first.
  std::span<const TokenId> last_ids(int64_t slot) const {
    return last_ids_[static_cast<size_t>(slot)];
  }

 private:
  struct Layer {
    size_t source = 0;  ///< layer that holds K and V
    KvBuffers kv;
    float weight_scale = 0.0f;
    Buffer indexer_keys;  ///< float32, where a sequence may need a selection
    LayerStates states{.slots = 0};
  };

  Backend& backend_;
  CacheType type_;
  int64_t capacity_ = 0;
  std::vector<int64_t> lengths_;  ///< of each slot's sequence
  TokenId separator_ = 0;
  std::vector<std::vector<TokenId>> last_ids_;  ///< [slots, NgramConfig::history]
  std::vector<Layer> layers_;
};

}  // namespace kvcal
