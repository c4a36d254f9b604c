#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "family/model_config.h"
#include "forward/layer_observers.h"
#include "forward/packed_layer.h"
#include "forward/packed_linear.h"
#include "forward/token_batch.h"

// clang-format off

/// The table of activations: row(name, element, reserved, width). Width is the number of elements
/// per token for a ModelConfig c; 0 where the model lacks the step. The rows define the buffers,
/// their reservation, and the memory plan.
#define KVCAL_ACTIVATIONS(row)                                                                   \
  row(normed, kCompute, kBatch, std::max(c.hidden_size, c.embedding_size))                       \
  row(query, kFloat32, kBatch, query_width)                                                      \
  row(query_codes, kFp8, kQuantizedQueries, query_width)                                         \
  row(query_down, kFloat32, kBatch, query_rank)                                                  \
  row(query_normed, kCompute, kBatch, query_rank)                                                \
  row(key_value, kFloat32, kBatch, is_latent ? latent_width : key_value_width)                   \
  /* States of relative logits. */                                                               \
  row(relative, kFloat32, kBatch, c.relative_rank * most_heads)                                  \
  row(attended, kCompute, kBatch, attended_width)                                                \
  row(ungated, kFloat32, kBatch, has_query_gate || norms_attended ? attended_width : 0)          \
  row(query_gate, kFloat32, kBatch, has_query_gate ? attended_width : 0)                         \
  /* Latent attention's K and V of all heads. */                                                 \
  row(latent, kCompute, kReadRows, latent_rank)                                                  \
  row(rotated_key, kFloat32, kReadRows, rotated_dim)                                             \
  row(expanded, kFloat32, kReadRows, latent_up_width)                                            \
  row(keys, kFloat32, kReadRows, is_latent ? query_width : 0)                                    \
  row(values, kFloat32, kReadRows, is_latent ? attended_width : 0)                               \
  /* The indexer of sparse attention, where it selects keys. */                                  \
  row(indexer_input, kFloat32, kIndexed, is_indexed ? c.hidden_size : 0)                         \
  row(indexer_weights, kFloat32, kIndexed, c.indexer.heads)                                      \
  row(indexer_query, kFloat32, kIndexed, c.indexer.query_width())                                \
  row(indexer_key, kFloat32, kIndexed, c.indexer.head_dim)                                       \
  row(indexer_keys, kFloat32, kIndexed, c.indexer.head_dim)                                      \
  /* A recurrent mixer, one after the other: mixed_in to convolved to scanned to mixed. */       \
  row(mixed_in, kFloat32, kBatch, is_recurrent ? c.recurrent.gates_width() + channels +          \
                                                 c.recurrent.heads + decays_width : 0)           \
  row(convolved, kFloat32, kBatch, channels)                                                     \
  /* Inputs of the convolutions of K and V, and outputs of those behind attention and MLP. */    \
  row(short_convolved, kFloat32, kBatch,                                                         \
      c.short_kernel > 0 ? std::max(key_value_width, c.hidden_size) : 0)                         \
  row(states, kFloat32, kBatch, steps_have_rank ? step_rank + 2 * c.recurrent.state_dim : 0)     \
  row(step_rows, kFloat32, kBatch, low_rank)                                                     \
  row(step_input, kCompute, kBatch, low_rank)                                                    \
  /* Mamba 1's step sizes; Kimi's decays by key, then its gates of the output. */                \
  row(steps, kFloat32, kBatch,                                                                   \
      low_rank > 0 ? std::max(c.recurrent.inner(), c.recurrent.keys()) : 0)                      \
  row(scanned, kFloat32, kBatch, c.recurrent.inner())                                            \
  row(mixed, kCompute, kBatch, c.recurrent.inner())                                              \
  /* MLP and experts: gate and up of the widest, where the matmul does not activate itself. */   \
  row(inner, kFloat32, kBatch, activates_in_matmul && !is_sparse ? 0 : 2 * widest_mlp(c))        \
  row(activated, kCompute, kBatch, widest_mlp(c))                                                \
  row(unnormed_inner, kFloat32, kBatch,                                                          \
      norms_inner || c.moe.scored_shared > 0 ? widest_mlp(c) : 0)                                \
  row(projected, kFloat32, kBatch, std::max(c.hidden_size, c.embedding_size))                    \
  row(output_normed, kFloat32, kBatch, c.hidden_size)                                            \
  row(beside, kFloat32, kBatch, c.architecture->has_mlp_beside_experts ? c.hidden_size : 0)      \
  /* A layer's own input: projected, then [gate, input] rows, then their product. */             \
  row(layer_projected, kFloat32, kBatch, c.layer_input_size)                                     \
  row(layer_input, kFloat32, kBatch, c.layer_input_size)                                         \
  row(layer_gated, kFloat32, kBatch, 2 * c.layer_input_size)                                     \
  row(layer_activated, kCompute, kBatch, c.layer_input_size)                                     \
  /* Parallel residual streams: of the embedding, before the layer, and what the layer changes. */\
  /* Of hyper-connections: behind attention and before it, each with an output behind the        \
     streams, and what attention or the MLP reads. */                                            \
  row(streams, kFloat32, kBatch, has_planes ? planes * c.hidden_size : 0)                        \
  row(predicted, kFloat32, kBatch, has_planes ? planes * c.hidden_size : 0)                      \
  row(active, kFloat32, kBatch, has_streams ? c.hidden_size : 0)                                 \
  row(stream_input, kFloat32, kBatch,                                                            \
      has_planes ? (connects_streams ? c.streams : 1) * c.hidden_size : 0)                       \
  row(stream_inputs, kFloat32, kBatch,                                                           \
      has_planes ? (connects_streams ? c.streams : 2) * c.hidden_size : 0)                       \
  row(stream_routes, kFloat32, kBatch,                                                           \
      connects_streams ? c.size_of(Dim::kConnections) : has_planes ? c.streams : 0)              \
  row(stream_coefficients, kFloat32, kBatch,                                                     \
      connects_streams ? c.size_of(Dim::kConnections) : has_planes ? c.streams * c.streams : 0)  \
  /* Streams that gates mix: normed side by side, as input of products, the gates; n-grams, */   \
  /* too: their keys, and what the convolution reads and makes. */                               \
  row(wide, kFloat32, kBatch, mixed_width)                                                       \
  row(wide_input, kCompute, kBatch, mixed_width)                                                 \
  row(wide_gates, kFloat32, kBatch, mixed_width)                                                 \
  row(mix_low, kFloat32, kBatch, c.stream_mix_rank)                                              \
  row(mix_low_input, kCompute, kBatch, c.stream_mix_rank)                                        \
  row(ngram_input, kCompute, kBatch, c.ngrams.width)                                             \
  row(ngram_values, kFloat32, kBatch, c.ngrams.longest > 0 ? mixed_width : 0)                    \
  row(laurel, kFloat32, kBatch, c.laurel_rank > 0 ? c.hidden_size : 0)                           \
  row(laurel_low, kFloat32, kBatch, c.laurel_rank)                                               \
  row(laurel_input, kCompute, kBatch, c.laurel_rank)                                             \
  row(router_input, kFloat32, kBatch, has_experts ? c.hidden_size : 0)                           \
  row(router_logits, kFloat32, kBatch,                                                           \
      has_experts ? c.moe.num_experts + std::max<int64_t>(c.moe.scored_shared, 1) : 0)           \
  /* The chosen experts, then their tokens, sorted by expert. */                                 \
  row(router_scratch, kFloat32, kBatch,                                                          \
      has_experts ? 2 * c.moe.num_experts + std::max<int64_t>(c.moe.num_groups, 1) : 0)          \
  row(chosen, kInt32, kBatch, has_experts ? c.moe.experts_per_token : 0)                         \
  row(chosen_weights, kFloat32, kBatch, has_experts ? c.moe.experts_per_token : 0)               \
  row(expert_tokens, kInt32, kBatch, has_experts ? c.moe.experts_per_token : 0)                  \
  row(expert_weights, kFloat32, kBatch, has_experts ? c.moe.experts_per_token : 0)               \
  row(shared_weights, kFloat32, kBatch,                                                          \
      has_experts ? std::max<int64_t>(c.moe.scored_shared, 1) : 0)                               \
  row(gathered, kCompute, kBatch, has_experts ? expert_width : 0)                                \
  row(expert_out, kFloat32, kBatch, has_experts ? std::max(expert_width, c.hidden_size) : 0)     \
  /* The experts' latent, and the sum of what they give. */                                      \
  row(latent_sum, kFloat32, kBatch, c.moe.latent_size)                                           \
  row(expert_input, kCompute, kBatch, c.moe.latent_size)

// clang-format on

namespace kvcal {

/// When the memory of an activation is reserved.
enum class Reserved : uint8_t {
  kBatch,             ///< at the start, for the tokens of the largest batch
  kReadRows,          ///< for the rows of the cache that attention reads, when it reads them
  kQuantizedQueries,  ///< where queries are quantized
  kIndexed,           ///< where an indexer runs
};

/// Uses of activations that not every run has.
struct ActivationUse {
  bool quantizes_queries = false;
  bool selects_keys = false;
};

/// Activations of one batch in a layer, in backend memory: [tokens, width] each, by the table.
class Activations {
 public:
  Activations(const ModelConfig& config, Backend& backend, ComputeType type);
  /// Grows the buffers of a group to at least rows. A buffer that grows loses its content.
  void reserve(Reserved group, int64_t rows);

  /// Bytes of all activations of one token.
  static uint64_t bytes_per_token(const ModelConfig& config, const Backend& backend,
                                  ComputeType type, const ActivationUse& use = {});

#define KVCAL_BUFFER(name, element, reserved, width) Buffer name;
  KVCAL_ACTIVATIONS(KVCAL_BUFFER)
#undef KVCAL_BUFFER

 private:
  struct Row {
    Buffer Activations::*buffer;
    Reserved reserved;
    uint64_t bytes;  ///< of a token
  };
  static std::vector<Row> rows_of(const ModelConfig& config, const Backend& backend,
                                  ComputeType type);

  Backend& backend_;
  std::vector<Row> rows_;
};

/// What the parts of a layer share: the model, the backend, the activations of a batch, what
/// observes the inputs of Linears, and the layer and batch that run.
struct LayerContext {
  const ModelConfig& config;
  Backend& backend;
  const ComputeType type;
  const int64_t most_rows;  ///< for which activations are reserved
  Activations buffers;
  ProductScratch scratch = {};
  LinearInputObserver observer = {};  ///< gets the input of every Linear; empty: nobody does
  AmaxSlotOf slot_of = {};            ///< slots of their largest magnitudes; empty: none
  // Borrowed while the layer runs:
  const PackedLayer* layer = nullptr;
  int64_t layer_index = 0;
  const TokenBatch* batch = nullptr;
};

/// Base of the parts of a layer: the operations that several of them need, on the rows of the batch
/// that runs. Buffers are [rows, width].
class LayerPart {
 protected:
  explicit LayerPart(LayerContext& context)
      : context_(context),
        config_(context.config),
        backend_(context.backend),
        buffers_(context.buffers),
        type_(context.type) {}

  const PackedLayer& layer() const { return *context_.layer; }
  const LayerConfig& own() const { return config_.layer(context_.layer_index); }
  const TokenBatch& batch() const { return *context_.batch; }
  int64_t rows() const { return batch().num_tokens; }
  /// Of the batch's products.
  bool is_decoding() const { return batch().is_decoding && !batch().has_fixed_products; }
  /// Rows as one head; stride: from row to row, in floats.
  HeadsView view(const float* data, int64_t width, int64_t stride) const {
    return {const_cast<float*>(data), rows(), 1, width, stride};
  }
  HeadsView view(const float* data, int64_t width) const { return view(data, width, width); }
  /// Copies rows of the same width, which follow each other in x.
  void copy(const float* x, const HeadsView& out) {
    backend_.copy_heads({.x = view(x, out.head_dim), .out = out, .width = out.head_dim});
  }

  /// Gives an input to the observer. Its layer is set here; empty segments: the batch's.
  void observe(LinearInput input);
  /// x: of the compute type.
  void observe(Role role, const Buffer& x, int64_t width, int64_t index = 0);
  AmaxSlot slot_of(Role role, int64_t index = 0) const {
    return context_.slot_of ? context_.slot_of(role, index) : AmaxSlot{};
  }
  /// Folds x into slot, for inputs whose operation cannot do it.
  void fold(AmaxSlot slot, const void* x, int64_t count, ComputeType type);

  /// Converts float32 x to type.
  void convert(ComputeType type, const float* x, int64_t width, void* out, AmaxSlot seen);
  /// Makes the input of the Linears that role names of float32 x, and observes it.
  void convert_input(Role role, const float* x, int64_t width, const Buffer& out,
                     int64_t index = 0);
  /// x: [rows, hidden_size].
  void normalize(const float* x, const PackedNorm& norm, ComputeType type, void* out,
                 AmaxSlot seen = {});
  /// The norm of the residual stream takes its place.
  void normalize_stream(float* hidden, const PackedNorm& norm);
  /// Multiplies the residual stream.
  void scale_stream(float* hidden, float factor) {
    if (factor != 1.0f) backend_.scale({.x = view(hidden, config_.hidden_size), .factor = factor});
  }
  /// Makes the input of the Linears that role names, norm(x), in normed, and observes it.
  void normalize_input(Role role, const float* x, const PackedNorm& norm);
  /// Writes x · function(gate), of each row, to out of out_type.
  void gate(RowsView x, RowsView gate, GateFunction function, int64_t width, ComputeType out_type,
            void* out, AmaxSlot seen = {});

  /// accumulate: adds to out.
  void project(const void* x, const PackedLinear& linear, int64_t rows, float* out,
               bool accumulate = false);
  void project(const Buffer& x, const PackedLinear& linear, const Buffer& out) {
    project(x.data(), linear, rows(), out.as<float>());
  }

  /// out = x convolved by weight, [channels, short_kernel]. x, out: [rows, channels]. states: whose
  /// part the batch's sequences continue; null: all begin.
  void convolve(const Buffer& x, const PackedValues& weight, int64_t channels,
                const LayerStates* states, Buffer LayerStates::*part, const Buffer& out);

  /// The way of a branch into the residual stream: hidden += multiplier · norm(x), without a norm
  /// that does not exist.
  struct Branch {
    const PackedNorm& norm;
    float multiplier = 1.0f;
    bool adds_directly() const { return !norm.exists() && multiplier == 1.0f; }
  };
  Branch branch(const PackedNorm& norm, float multiplier = 1.0f) const {
    return {norm, config_.residual_multiplier * multiplier};
  }
  /// Adds linear(x) to hidden by the branch.
  void add_projected(const Buffer& x, const PackedLinear& linear, const Branch& branch,
                     float* hidden);
  /// Adds x to hidden by the branch.
  void add_output(const Buffer& x, const Branch& branch, float* hidden) {
    backend_.residual_norm(output_args(x, branch, hidden));
  }
  ResidualNormArgs output_args(const Buffer& x, const Branch& branch, float* hidden) const;

  LayerContext& context_;
  const ModelConfig& config_;
  Backend& backend_;
  Activations& buffers_;
  const ComputeType type_;
};

}  // namespace kvcal
