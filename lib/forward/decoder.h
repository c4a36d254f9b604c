#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/token.h"
#include "forward/decoder_step.h"
#include "forward/kv_cache.h"
#include "forward/layer_runner.h"
#include "forward/linear_product.h"
#include "stored/weights.h"

namespace kvcal {

/// A model whose layers are all packed and stay in memory, for generation and evaluation: K and V
/// go through a KvCache of any dtype. Borrows config and backend.
class Decoder {
 public:
  Decoder(const ModelConfig& config, const Weights& weights, Backend& backend, ComputeType type);

  KvCache make_cache(KvDType dtype, const std::vector<LayerKvScales>& scales, int64_t capacity,
                     int64_t slots = 1) const;

  /// Appends ids to the cached sequence; the logits [vocab_size] after the last one. Attention
  /// reads K and V of the new tokens through the cache too, as engines do. Throws Error for NaN or
  /// Inf in the logits, ids outside the vocabulary, or a full cache.
  std::vector<float> step(std::span<const TokenId> ids, KvCache& cache);
  /// The same, with logits after every id: [ids, vocab_size].
  std::vector<float> step_all(std::span<const TokenId> ids, KvCache& cache);

  /// New tokens of the sequence in one of a cache's slots.
  struct SequenceTokens {
    int64_t slot = 0;
    std::span<const TokenId> ids;
    /// Tokens that the sequence will have, where the frequencies of RoPE are to be those of all of
    /// it, as in a forward pass of the whole; 0: those it has after this step, as when generating.
    int64_t whole_length = 0;
  };
  /// step of several of the cache's sequences together, by ascending slots: the logits after the
  /// last one of each, [sequences, vocab_size]. A sequence's bytes do not depend on which others go
  /// with it, as long as all have one new token or none has.
  std::vector<float> step_together(std::span<const SequenceTokens> sequences, KvCache& cache);

  /// As step_all, with the residual stream after the last layer instead of logits:
  /// [ids, hidden_size] float32 in the backend's memory, for logits_of. Logits of many tokens do
  /// not fit in memory together. whole_length: as in SequenceTokens.
  Buffer step_hidden(std::span<const TokenId> ids, KvCache& cache, int64_t whole_length = 0);
  /// The logits of some rows of what step_hidden gave: [rows, vocab_size].
  std::vector<float> logits_of(const Buffer& hidden, int64_t first_row, int64_t rows);

  /// A sequence whose layers before `layer` are another cache's: from there on it reads its own,
  /// which is as long.
  struct Branch {
    int64_t layer = 0;
    KvCache& cache;
  };
  /// step_hidden of each branch, which borrows the layers before its own from the run through
  /// cache, and last of that run itself. branches must ascend by layer.
  std::vector<Buffer> step_branches(std::span<const TokenId> ids, KvCache& cache,
                                    std::span<const Branch> branches, int64_t whole_length = 0);

  const ModelConfig& config() const { return config_; }

 private:
  void check(std::span<const TokenId> ids, const KvCache& cache, int64_t slot = 0) const;
  /// A step's tokens, embedded in hidden_.
  struct PlacedStep {
    const RopeTables& ropes;
    TokenBatch batch;
  };
  PlacedStep place(std::span<const SequenceTokens> sequences, const KvCache& cache);
  PlacedStep place(std::span<const TokenId> ids, const KvCache& cache, int64_t whole_length = 0);
  void run(std::span<const TokenId> ids, KvCache& cache);
  void run(const PlacedStep& step, KvCache& cache);
  static void advance(const PlacedStep& step, KvCache& cache);
  Buffer copy_of_hidden(int64_t rows);
  std::vector<float> run_recorded(TokenId id, KvCache& cache);
  struct LayerRange {
    int64_t begin = 0, end = 0;
  };
  void run_layers(LayerRunner& runner, const TokenBatch& batch, const RopeTables& ropes,
                  float* hidden, KvCache& cache, LayerRange layers);
  /// hidden: [rows, hidden_size]; normed: the same of type; logits: [rows, vocab_size].
  /// scratch: of the product, where lm_head's input is quantized.
  void project_logits(const float* hidden, int64_t rows, void* normed, float* logits,
                      bool is_decoding, ProductScratch& scratch);
  std::vector<float> read_logits(const std::byte* logits, int64_t rows);
  const RopeTables& ropes_for(int64_t length);
  const RopeTables& ropes_for(const std::vector<int64_t>& lengths);
  /// hidden: [rows, hidden_size] in the backend's memory.
  std::vector<float> logits_of_rows(const float* hidden, int64_t rows, bool is_decoding);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  ComputeType type_;
  std::vector<PackedLayer> layers_;
  PackedNorm final_norm_;
  PackedLinear output_embedding_;
  std::unique_ptr<RopeTables> ropes_;
  std::unique_ptr<RopeTables> mixed_ropes_;  ///< of a step whose sequences need different ones
  int64_t rope_length_ = 0;
  std::unique_ptr<LayerRunner> runner_;
  int64_t runner_tokens_ = 0;
  Buffer hidden_;  ///< [runner_tokens_, hidden_size] float32
  ProductScratch scratch_;
  std::unique_ptr<DecoderStep> step_;  ///< null until one is recorded
};

}  // namespace kvcal
