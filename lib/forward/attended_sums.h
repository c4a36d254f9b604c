#pragma once

#include "forward/layer_context.h"

namespace kvcal {

/// Residual sums that layers attend over (attention residuals): attention, a mixer and the MLP each
/// read a softmax over the sums, one by one scored by a vector. The sums are planes of the hidden
/// states: the first is that of the layer's own block of layers, which outputs are added to; those
/// behind are the embedding and the sums of the blocks before. Layer 0 finds the embedding in the
/// first plane, and the last layer leaves what it attends to there, so what embeds, norms last and
/// makes logits sees one stream.
/// Source: llm-compressor 0.14, modeling/kimi_k3 `KimiDecoderLayer._forward_attn_residual`.
class AttendedSums : private LayerPart {
 public:
  explicit AttendedSums(LayerContext& context) : LayerPart(context) {}

  /// What attention or a mixer reads of the sums, hidden [streams, rows, hidden_size].
  const float* attend_before_attention(const float* hidden);
  /// The same, of the call before.
  const float* attended() const { return buffers_.active.as<float>(); }
  /// Where the layer is the first of its block, puts the sum so far behind the others and begins
  /// with zeros.
  void begin_layer(float* hidden);
  /// What the MLP reads.
  const float* attend_before_mlp(const float* hidden);
  /// Behind the last layer, writes what the final norm reads to the first plane.
  void end_layer(float* hidden);

 private:
  bool begins_block() const { return context_.layer_index % config_.residual_block == 0; }
  /// Sums of blocks that begin before this layer.
  int64_t sums_before() const {
    return (context_.layer_index + config_.residual_block - 1) / config_.residual_block;
  }
  /// Floats from one sum to the next.
  int64_t sum_size() const { return rows() * config_.hidden_size; }
  /// Attends over the first plane and `others` behind it.
  void attend(const float* hidden, int64_t others, const PackedValues& scores, float* out);
};

}  // namespace kvcal
