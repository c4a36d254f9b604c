#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "forward/packed_linear.h"
#include "stored/weights.h"

namespace kvcal {

/// Parts of a layer to pack.
enum class LayerParts { kKeyValue, kAll };

/// Weights of a norm as the backend applies them; empty where the layer has no such norm.
struct PackedNorm {
  PackedValues weight = {}, bias = {};
  bool exists() const { return weight.exists(); }
};

/// Rows of the residual stream, [rows, hidden_size], and the place of their norm.
struct NormRows {
  const float* x = nullptr;
  int64_t rows = 0;
  ComputeType type = ComputeType::kFloat32;  ///< of out
  void* out = nullptr;
  AmaxSlot seen = {};
};
/// The model's norm with these weights.
void normalize(Backend& backend, const ModelConfig& config, const PackedNorm& norm,
               const NormRows& rows);

struct PackedExperts {
  PackedLinear router;      ///< float32 [experts, hidden], then the shared gate
  PackedValues correction;  ///< [experts], or none
  std::vector<PackedMlp> experts;
  /// To and from the experts' latent; without matrices where they read the hidden state.
  PackedLinear in, out;
  PackedNorm sum_norm;                   ///< of the sum in the latent, or none
  PackedMlp shared;                      ///< width 0: none
  std::vector<PackedMlp> scored_shared;  ///< those that the router scores
  float factor = 1.0f;                   ///< of all weights
  PackedNorm router_norm;                ///< of the router's own input, or none
  PackedValues expert_scales;            ///< [experts] factors of the experts' weights, or none
  // Experts beside an MLP: their input norm, and output norms of both.
  PackedNorm input_norm, output_norm, mlp_output_norm;
  bool shared_is_gated = false;
};

/// A recurrent mixer. For each token, in gives the gate [inner], the convolution's channels, and
/// the raw step sizes [heads] (Mamba 2) or update strengths and decays [2 * heads] (delta net).
/// Kimi's delta net: the gate or its low rank, the low rank of decays or nothing, the channels,
/// update strengths [heads] and, where they have no low rank, decays by key [heads * state_dim].
struct PackedRecurrence {
  PackedLinear in, out;
  PackedValues conv_weight;  ///< [channels, kernel]
  PackedValues conv_bias;    ///< [channels], or none
  PackedValues dt_bias;      ///< [heads]; of decays by key: [heads, state_dim]
  PackedValues steps;        ///< [heads] raw step sizes of every token, or none: they are in in
  PackedValues decay;        ///< -exp(A_log): [heads], Mamba 1: [heads, state_dim]
  PackedValues skip;         ///< [heads] D, or none
  PackedValues norm;         ///< of the gated norm
  // Mamba 1: projections to step sizes, B and C.
  PackedLinear states, step;
  // Kimi's delta net: from their low ranks.
  PackedLinear gates, decays;
  PackedValues step_norm, b_norm, c_norm;
};

/// A layer's own input: norm(projection of the token's embedding) and a row of a table by token,
/// gated by the residual stream.
struct PackedLayerInput {
  PackedLinear projection;  ///< [layer_input_size, hidden]
  PackedNorm norm;          ///< [layer_input_size], times 1 / sqrt(2)
  PackedLinear gate, output;
  PackedNorm output_norm;
};

/// Parallel residual streams of a layer. What mixes them is float32 for every compute type.
struct PackedStreams {
  PackedNorm router_norm;   ///< [hidden], times 1 / hidden
  PackedLinear router;      ///< [streams, hidden]
  PackedLinear prediction;  ///< [streams * streams, streams]
  PackedLinear correction;  ///< [streams, streams], with biases of 1
  PackedValues scale;       ///< [hidden] of the active stream before its gate, or none
  std::vector<PackedLinear> projections;  ///< of the embedding, [hidden, hidden] each; layer 0
  std::vector<PackedLinear> outputs;      ///< of the further streams, likewise; last layer
};

/// Hyper-connections of all streams with attention or the MLP, which are float32 for every compute
/// type.
struct PackedConnection {
  PackedValues norm;    ///< [streams * hidden] ones
  PackedLinear linear;  ///< [(2 + streams) * streams, streams * hidden]
  PackedValues scale, base;
};

/// Gates that mix parallel residual streams into one input, and the shares of what is made of it.
struct PackedStreamMix {
  PackedNorm norm;      ///< [streams, hidden]
  PackedLinear down;    ///< [rank, streams * hidden]
  PackedLinear up;      ///< [streams * hidden, rank]
  PackedLinear shares;  ///< [streams, streams * hidden]; without a matrix behind the last layer
};

/// N-grams that a layer adds to the residual streams.
struct PackedNgrams {
  PackedLinear key;                             ///< [streams * hidden, ngrams.width]
  PackedLinear value;                           ///< [hidden, ngrams.width]
  PackedNorm key_norm, stream_norm, conv_norm;  ///< [streams, hidden]
  PackedValues conv_weight;  ///< [streams * hidden, convolved_rows], zeros between the taps
};

/// A residual of low rank beside attention: norm(up(down(x))) + x for attention's input x.
struct PackedLaurel {
  PackedLinear down;  ///< [rank, hidden]
  PackedLinear up;    ///< [hidden, rank]
  PackedNorm norm;
};

/// Input of a draft layer: projection of [norm(embedding of the next token), norm(final norm(hidden
/// state))].
struct PackedDraftInput {
  PackedNorm embedding_norm, final_norm, hidden_norm;
  PackedLinear projection;  ///< [hidden, 2 * hidden]
};

/// The indexer of sparse attention.
struct PackedIndexer {
  PackedLinear query;     ///< [heads * head_dim, query_rank]; of blocks: [.., hidden]
  PackedLinear key;       ///< [head_dim, hidden]
  PackedNorm query_norm;  ///< of each head, or none
  PackedNorm key_norm;    ///< centred, with a bias; of blocks: of their means, neither
  PackedLinear weights;   ///< float32 [heads, hidden]; without a matrix all are 1
};

/// Convolutions over a few tokens whose inputs are added to them; without values where the layer
/// has none. The input's part is in the last tap.
struct PackedConvolutions {
  PackedValues key_value;                     ///< [key_width + value_width, kernel]
  PackedValues attention_output, mlp_output;  ///< [hidden, kernel]
};

/// One layer in the backend's layout.
struct PackedLayer {
  PackedNorm input_norm, attention_output_norm, mlp_norm, mlp_output_norm;
  PackedNorm
      mixer_norm;  ///< of a recurrent mixer's input: the input norm, times its own multiplier
  PackedNorm stream_norm;           ///< of the residual stream at the layer's end, or none
  PackedNorm attended_norm;         ///< [attended_width] of the output of attention, or none
  PackedNorm query_norm, key_norm;  ///< [head_dim], [heads, head_dim] or [width]
  PackedNorm value_norm;            ///< [value_dim] ones, or none
  PackedLinear query, output;
  PackedLinear query_gate;  ///< [query_width, hidden]; a sigmoid of it gates attention
  PackedLinear key_value;   ///< [key_width + value_width, hidden]: K, then V
  // Latent attention: key_value is [latent_rank + rope_dim, hidden].
  PackedLinear query_down;  ///< before query
  PackedNorm query_down_norm, latent_norm;
  PackedNorm latent_key_norm;   ///< [rope_dim] of the rotated key before it turns, or none
  PackedLinear latent_up;       ///< [heads * (nope_dim + value_dim), latent_rank]
  PackedIndexer indexer;        ///< without matrices where the layer has none
  PackedValues sinks;           ///< [heads], or none
  PackedValues slopes;          ///< [heads] of ALiBi, or none
  PackedLinear relative;        ///< [heads * relative_rank, hidden] of relative logits, or none
  PackedValues relative_table;  ///< [relative_extent, relative_rank], likewise
  PackedConvolutions convolutions;
  PackedRecurrence recurrence;  ///< without matrices where the layer has no mixer of this kind
  PackedMlp mlp;                ///< width 0 in a layer without an MLP, or with experts alone
  PackedExperts moe;            ///< empty in a dense layer
  PackedLayerInput input;       ///< without matrices where layers have none
  PackedDraftInput draft;       ///< likewise, of a draft layer
  PackedStreams streams;        ///< without matrices where there is one stream, or all are mixed
  PackedConnection attention_connection, mlp_connection;  ///< without matrices where there is none
  /// Of the input of attention or a mixer, of that of the MLP, and behind the last layer; without
  /// matrices where streams are not mixed so.
  PackedStreamMix attention_mix, mlp_mix, final_mix;
  /// [hidden] weights of the sums that attention or a mixer attends over, the MLP, and the final
  /// norm behind the last layer; none where there is one sum.
  PackedValues attention_scores, mlp_scores, final_scores;
  PackedNgrams ngrams;  ///< without matrices where the layer has none
  PackedLaurel laurel;  ///< without matrices where the layer has none
  float scalar = 1.0f;  ///< factor of the residual stream at the layer's end
};

/// Packs the layer for every backend of the group, in their order. Matrices are read once.
std::vector<PackedLayer> pack_layer(const Weights& weights, const ModelConfig& config,
                                    int64_t layer, LayerParts parts, PackGroup& group,
                                    ComputeType type);

PackedRecurrence pack_recurrence(const Weights& weights, const ModelConfig& config, int64_t layer,
                                 SharedLinears& linears, ComputeType type);

/// The taps of a layer's convolutions, [channels of all roles, short_kernel]; none where the layer
/// has none.
PackedValues pack_convolution(const Weights& weights, const ModelConfig& config, int64_t layer,
                              std::span<const Role> roles, Backend& backend);
/// PackedLayer::relative_table.
PackedValues pack_relative_table(const Weights& weights, const ModelConfig& config, int64_t layer,
                                 Backend& backend);
/// Packs the gates of the layer's residual streams, and its n-grams. Of kKeyValue only the gates
/// before attention.
void pack_gated_streams(const Weights& weights, const ModelConfig& config, int64_t layer,
                        LayerParts parts, SharedLinears& linears, ComputeType type,
                        PackedLayer& packed);

/// Weight and bias of the norm before the logits.
PackedNorm pack_final_norm(const Weights& weights, const ModelConfig& config, Backend& backend);

/// Between the embedding's table and the residual stream.
struct PackedEmbedding {
  PackedLinear projection;  ///< [hidden, embedding_size], or without a matrix
  PackedNorm norm;          ///< of the residual stream before positions are added, or none
  ComputeType type = ComputeType::kFloat32;  ///< of the projection's input
};
/// For the group's first backend.
PackedEmbedding pack_embedding(const Weights& weights, const ModelConfig& config, PackGroup& group,
                               ComputeType type);

/// Between the last layer and lm_head.
struct PackedHeadInput {
  PackedNorm norm;
  PackedLinear projection;  ///< [embedding_size, hidden], or without a matrix
};
/// For the group's first backend.
PackedHeadInput pack_head_input(const Weights& weights, const ModelConfig& config, PackGroup& group,
                                ComputeType type);

/// lm_head, or the embedding where the two are tied, with its bias, for the group's first backend:
/// the rows of config.output_vocab_size.
PackedLinear pack_output_embedding(const Weights& weights, const ModelConfig& config,
                                   PackGroup& group, ComputeType type);

}  // namespace kvcal
