#pragma once

#include "forward/layer_context.h"

namespace kvcal {

/// Hyper-connections (mHC) between parallel residual streams, which are planes of the hidden
/// states: attention, a recurrent mixer or the MLP reads a sum of all streams, and its output goes
/// to each of them, while they are mixed. The weights of all that are of each token, made of its
/// streams. Layer 0 finds the embedding in the first plane, and the last layer leaves the mean of
/// the streams there, so what embeds, norms last and makes logits sees one stream.
/// Source: transformers 5.24, models/deepseek_v4 `DeepseekV4HyperConnection` and models/glm5_next
/// `Glm5NextTextDecoderLayer`.
class HyperConnections : private LayerPart {
 public:
  explicit HyperConnections(LayerContext& context) : LayerPart(context) {}

  /// Takes the streams over from hidden and returns what attention or the mixer reads.
  const float* enter_attention(const float* hidden);
  /// What attention, the mixer or the MLP reads.
  const float* input() const { return buffers_.active.as<float>(); }
  /// Zeros, to which attention or the mixer adds its output.
  float* attention_output() { return cleared_output(buffers_.predicted); }
  /// Takes that output to the streams and makes what the MLP reads.
  void leave_attention();
  /// Zeros, to which the MLP adds its output.
  float* mlp_output() { return cleared_output(buffers_.streams); }
  /// Takes the MLP's output to the streams, which it writes to hidden.
  void leave_mlp(float* hidden);

 private:
  /// Floats from one stream to the next.
  int64_t stream_size() const { return rows() * config_.hidden_size; }
  /// The plane behind the streams.
  float* cleared_output(const Buffer& planes);
  /// Makes the weights of these streams, and the input that they collapse to.
  void collapse(const Buffer& planes, const PackedConnection& connection);
  /// Writes the streams, mixed, and the output behind them to out.
  void expand(const Buffer& planes, float* out);
  float* collapse_weights() const { return buffers_.stream_routes.as<float>(); }
  float* expand_weights() const { return collapse_weights() + rows() * config_.streams; }
};

}  // namespace kvcal
