#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/token.h"
#include "model/decoder_step.h"
#include "model/kv_cache.h"
#include "model/layer_runner.h"
#include "model/linear_product.h"
#include "model/weights.h"

namespace kvcal {

/// A model whose layers are all packed and stay in memory, for generation and evaluation: K and V
/// go through a KvCache of any dtype. Borrows config and backend.
class Decoder {
 public:
  Decoder(const ModelConfig& config, const Weights& weights, Backend& backend, ComputeType type);

  KvCache make_cache(KvDType dtype, const std::vector<LayerKvScales>& scales,
                     int64_t capacity) const;

  /// Appends ids to the cached sequence; the logits [vocab_size] after the last one. Attention
  /// reads K and V of the new tokens through the cache too, as engines do. Throws Error for NaN or
  /// Inf in the logits, ids outside the vocabulary, or a full cache.
  std::vector<float> step(std::span<const TokenId> ids, KvCache& cache);
  /// The same, with logits after every id: [ids, vocab_size].
  std::vector<float> step_all(std::span<const TokenId> ids, KvCache& cache);

  const ModelConfig& config() const { return config_; }

 private:
  void check(std::span<const TokenId> ids, const KvCache& cache) const;
  void run(std::span<const TokenId> ids, KvCache& cache);
  std::vector<float> run_recorded(TokenId id, KvCache& cache);
  void run_layers(LayerRunner& runner, const TokenBatch& batch, const RopeTables& ropes,
                  float* hidden, KvCache& cache);
  std::vector<float> logits_of(int64_t first_row, int64_t rows);
  /// hidden: [rows, hidden_size]; normed: the same of type; logits: [rows, vocab_size].
  /// scratch: of the product, where lm_head's input is quantized.
  void project_logits(const float* hidden, int64_t rows, void* normed, float* logits,
                      bool is_decoding, ProductScratch& scratch);
  std::vector<float> read_logits(const std::byte* logits, int64_t rows);
  const RopeTables& ropes_for(int64_t length);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  ComputeType type_;
  std::vector<PackedLayer> layers_;
  PackedNorm final_norm_;
  PackedLinear output_embedding_;
  std::unique_ptr<RopeTables> ropes_;
  int64_t rope_length_ = 0;
  std::unique_ptr<LayerRunner> runner_;
  int64_t runner_tokens_ = 0;
  Buffer hidden_;  ///< [runner_tokens_, hidden_size] float32
  ProductScratch scratch_;
  std::unique_ptr<DecoderStep> step_;  ///< null until one is recorded
};

}  // namespace kvcal
