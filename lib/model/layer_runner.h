#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "core/token.h"
#include "model/architecture.h"
#include "model/rope.h"
#include "model/weights.h"

namespace kvcal {

/// Tokens that go through a layer together: whole or continued sequences, packed without padding.
struct TokenBatch {
  int64_t num_tokens = 0;
  std::vector<Segment> segments;  ///< rows of this batch; kv rows of the storage attention reads
  Buffer positions;               ///< int32 [num_tokens], rows of the rope table
};

/// K and V as attention reads them, [rows, num_key_value_heads, head_dim], and their scales per
/// head.
struct KvStorage {
  KvDType dtype = KvDType::kFloat32;
  const void* k = nullptr;
  const void* v = nullptr;
  const float* k_scales = nullptr;
  const float* v_scales = nullptr;
};

/// Runs one decoder layer over one batch. Owns the activations of a batch and nothing else; the
/// residual stream is the caller's. The forward pass is: keys_values, then whatever observes or
/// stores them, then finish.
class LayerRunner {
 public:
  LayerRunner(const ModelConfig& config, Backend& backend, ComputeType type, int64_t max_tokens);

  /// Input norm, K and V projections, RoPE on K. The views stay valid until the next call.
  struct KeysValues {
    HeadsView k, v;
  };
  KeysValues keys_values(const PackedLayer& layer, const float* hidden, const TokenBatch& batch,
                         const RopeTable& rope);

  /// The rest of the layer after keys_values of the same batch: Q, attention over storage, output
  /// projection and MLP, both added to hidden [num_tokens, hidden_size] float32.
  void finish(const PackedLayer& layer, int64_t layer_index, float* hidden, const TokenBatch& batch,
              const RopeTable& rope, const KvStorage& storage);

  /// Bytes of activations a token of a batch takes.
  static size_t bytes_per_token(const ModelConfig& config, ComputeType type);

 private:
  /// Into normed_.
  void normalize(const float* hidden, const Buffer& weight, int64_t rows);
  void project(const Buffer& x, const PackedMatrix& weight, const Buffer& bias, int64_t rows,
               Buffer& out);
  void add_projected(const Buffer& x, const PackedMatrix& weight, const Buffer& bias, int64_t rows,
                     float* hidden);
  void rotate(const HeadsView& heads, const TokenBatch& batch, const RopeTable& rope);
  /// From query_ and storage into attended_.
  void attend(int64_t layer_index, const TokenBatch& batch, const KvStorage& storage);

  const ModelConfig& config_;
  Backend& backend_;
  ComputeType type_;
  Buffer normed_;     ///< [tokens, hidden] of type
  Buffer query_;      ///< [tokens, query_width] float32
  Buffer key_value_;  ///< [tokens, 2 * kv_width] float32
  Buffer attended_;   ///< [tokens, query_width] of type
  Buffer gate_up_;    ///< [tokens, 2 * intermediate] float32
  Buffer activated_;  ///< [tokens, intermediate] of type
};

}  // namespace kvcal
