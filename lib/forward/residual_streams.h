// Parallel residual streams are planes of the hidden states, one stream of all tokens behind the
// other (ModelConfig::streams). The embedding is the first plane; layer 0 makes the others from
// it, and the last layer joins them into it. So what embeds, norms last and makes logits sees
// one stream, and the Linears that do both are observed as those of these two layers
// (is_run_by_layers, is_run_by_last_layer).
#pragma once

#include "forward/layer_context.h"

namespace kvcal {

/// What a layer does to the residual stream beside attention and MLP: parallel streams, the
/// residual of low rank (laurel), and the layer's own input.
/// Source: transformers 5.23, models/gemma3n and models/gemma4.
class ResidualStreams : private LayerPart {
 public:
  explicit ResidualStreams(LayerContext& context) : LayerPart(context) {}

  /// Predicts the streams that the layer begins with, and returns the active one.
  const float* predict(const float* hidden);
  /// A copy of the predicted active stream, which the layer changes.
  float* begin();
  /// Writes the streams to hidden: predicted, each changed as the layer changed the active one.
  void correct(float* hidden);
  /// Writes the mean of the streams to the first, behind the last layer.
  void join(float* hidden);

  /// Makes the residual beside attention, of attention's input x and its norm.
  void make_laurel(const float* x);
  /// hidden = (hidden + laurel) / sqrt(2).
  void add_laurel(float* hidden);

  /// Adds the layer's own input, gated by hidden, to hidden.
  void add_layer_input(const LayerInputs& inputs, float* hidden);

 private:
  /// Writes the streams of the embedding to streams.
  void project_streams(const float* embedded);
  /// Writes the coefficients that linear makes of the routes of x: tanh(router(norm(x))).
  void route(const float* x, const PackedLinear& linear, Role role);
  /// Floats from one stream to the next.
  int64_t stream_size() const { return rows() * config_.hidden_size; }
  /// Writes linear of x, a Linear of that role, to out, with the magnitude of target.
  void project_stream(Role role, int64_t index, const PackedLinear& linear, const float* x,
                      const float* target, float* out);
  /// Writes the input of the gate of the layer's own input to normed.
  void make_gate_input(const float* hidden);
};

}  // namespace kvcal
