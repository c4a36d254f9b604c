// Sequences decode together in slots of one cache. Each slot has rows of its own, so one
// attention call serves all sequences; products of a fixed height keep a sequence's bytes
// independent of its neighbours.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/number.h"
#include "forward/kv_cache.h"
#include "forward/layer_runner.h"
#include "forward/packed_linear.h"
#include "stored/weights.h"

namespace kvcal {

/// NaN or Inf in logits.
class NotFiniteLogits : public Error {
 public:
  NotFiniteLogits(std::string message, int64_t row) : Error(std::move(message)), row_(row) {}
  /// Of the rows that were asked for, the one with the value; of texts that are continued together,
  /// the place of the text.
  int64_t row() const { return row_; }

 private:
  int64_t row_;
};

class DecoderStep;

/// A model whose packed layers all stay in memory, for generation and evaluation. K and V go
/// through a KvCache of any type. Borrows config and backend.
class Decoder {
 public:
  Decoder(const ModelConfig& config, const Weights& weights, Backend& backend, ComputeType type);
  Decoder(Decoder&&) noexcept;
  ~Decoder();

  KvCache make_cache(const CacheType& type, const std::vector<LayerKvScales>& scales,
                     int64_t capacity, int64_t slots = 1) const;

  /// Appends ids to the cached sequence and returns the logits [output_vocab_size] after the last
  /// id. Attention reads K and V of the new tokens through the cache too, as engines do. Throws
  /// Error for ids outside the vocabulary or a full cache, NotFiniteLogits for NaN or Inf in the
  /// logits.
  std::vector<float> step(std::span<const TokenId> ids, KvCache& cache);

  /// New tokens of the sequence in one of a cache's slots.
  struct SequenceTokens {
    int64_t slot = 0;
    std::span<const TokenId> ids;
    /// Final length of the sequence, for RoPE frequencies that depend on it, as in a forward pass
    /// over the whole sequence; 0: the length after this step, as in generation.
    int64_t whole_length = 0;
  };
  /// Runs step for several sequences of the cache together, by ascending slots; returns the logits
  /// after the last token of each, [sequences, output_vocab_size]. A sequence's bytes do not depend
  /// on the others in the call, as long as all have one new token or none has.
  std::vector<float> step_together(std::span<const SequenceTokens> sequences, KvCache& cache);

  /// As step_together, but returns the residual stream after the last layer, the rows of one
  /// sequence behind those of another: [all ids, hidden_size] float32 in the backend's memory, for
  /// logits_at.
  Buffer step_hidden_together(std::span<const SequenceTokens> sequences, KvCache& cache);
  /// Logits of these rows of step_hidden_together's result: [rows, output_vocab_size]. A row's
  /// bytes do not depend on the others.
  std::vector<float> logits_at(const Buffer& hidden, std::span<const int32_t> rows);

  /// As step, but returns the residual stream after the last layer: [ids, hidden_size] float32
  /// in the backend's memory, for logits_of. Logits of many tokens do not fit in memory together.
  /// whole_length: as in SequenceTokens.
  Buffer step_hidden(std::span<const TokenId> ids, KvCache& cache, int64_t whole_length = 0);
  /// Logits of some rows of step_hidden's result: [rows, output_vocab_size].
  std::vector<float> logits_of(const Buffer& hidden, int64_t first_row, int64_t rows);

  /// A sequence that uses another cache for the layers before `layer`, and its own, of the same
  /// length, from there on.
  struct Branch {
    int64_t layer = 0;
    KvCache& cache;
  };
  /// Runs step_hidden through cache and for each branch, which takes the layers before its own from
  /// the run through cache. Returns the results of the branches, then that of cache. branches must
  /// ascend by layer.
  std::vector<Buffer> step_branches(std::span<const TokenId> ids, KvCache& cache,
                                    std::span<const Branch> branches, int64_t whole_length = 0);

  const ModelConfig& config() const { return config_; }
  ComputeType compute_type() const { return type_; }

 private:
  void check(std::span<const TokenId> ids, const KvCache& cache, int64_t slot = 0) const;
  /// Embeds the tokens of a step in hidden_.
  TokenBatch place(std::span<const SequenceTokens> sequences, const KvCache& cache);
  /// has_fixed_products: as TokenBatch has it.
  TokenBatch run(std::span<const SequenceTokens> sequences, KvCache& cache,
                 bool has_fixed_products = false);
  TokenBatch run(std::span<const TokenId> ids, KvCache& cache, int64_t whole_length = 0) {
    const SequenceTokens only{.ids = ids, .whole_length = whole_length};
    return run({&only, 1}, cache);
  }
  static void advance(const TokenBatch& step, KvCache& cache);
  Buffer copy_of_hidden(int64_t rows);
  std::vector<float> run_recorded(TokenId id, KvCache& cache);
  /// earlier: holds K and V of layers before begin; null: the same cache does.
  struct LayerRange {
    int64_t begin = 0, end = 0;
    const KvCache* earlier = nullptr;
  };
  void run_layers(LayerRunner& runner, const TokenBatch& batch, float* hidden, KvCache& cache,
                  LayerRange layers);
  void run_layers(const TokenBatch& step, const Buffer& hidden, KvCache& cache, LayerRange layers) {
    run_layers(*runner_, step, hidden.as<float>(), cache, layers);
  }
  /// hidden: [rows, hidden_size]; normed: room of type for rows of hidden_size, or
  /// of embedding_size where that is more; logits: [rows,
  /// output_vocab_size]. scratch: for the product, where lm_head's input is quantized.
  void project_logits(const float* hidden, int64_t rows, void* normed, float* logits,
                      bool is_decoding, ProductScratch& scratch);
  std::vector<float> read_logits(const Buffer& logits, int64_t rows);
  [[noreturn]] void fail_nonfinite(float value, int64_t place) const;
  const RopeTables& ropes_for(int64_t length);
  const RopeTables& ropes_for(const std::vector<int64_t>& lengths);
  /// hidden: [rows, hidden_size] in the backend's memory.
  std::vector<float> logits_of_rows(const float* hidden, int64_t rows, bool is_decoding);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  ComputeType type_;
  std::vector<PackedLayer> layers_;
  PackedEmbedding embedding_;
  PackedHeadInput head_input_;
  PackedLinear output_embedding_;
  RopeTables ropes_;
  RopeTables mixed_ropes_;   ///< of a step whose sequences need different tables
  int64_t rope_length_ = 0;  ///< of ropes_; 0: none are made
  std::unique_ptr<LayerRunner> runner_;
  int64_t runner_tokens_ = 0;
  /// float32, the step's residual streams [streams, tokens, hidden_size]; behind the last layer the
  /// first of them is the model's.
  Buffer hidden_;
  // Where layers have inputs of their own: embeddings of the step, and LayerInputs::rows or ngrams.
  Buffer embedded_, input_rows_;
  ProductScratch scratch_;
  std::unique_ptr<DecoderStep> step_;  ///< null until one is recorded
};

}  // namespace kvcal
