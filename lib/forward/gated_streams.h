// Parallel residual streams that gates mix are planes of the hidden states, too (see
// residual_streams.h): layer 0 copies the embedding to all of them, and the last layer mixes them
// into the first, so that what embeds and makes logits sees one stream.
#pragma once

#include "forward/layer_context.h"

namespace kvcal {

/// Residual streams that gates of a low rank mix into the input of attention, of a mixer and of an
/// MLP, whose output each stream gets a share of; and n-grams that a layer adds to them.
/// Source: transformers 5.24, models/qwen4_exp `Qwen4ExpTextGatedResidual` and
/// `Qwen4ExpTextPLELayer`.
class GatedStreams : private LayerPart {
 public:
  explicit GatedStreams(LayerContext& context) : LayerPart(context) {}

  /// Makes the streams that the layer begins with. hidden: [streams, rows, hidden_size]; layer 0
  /// reads only the first. states: continue the batch's sequences; null: all begin.
  void begin(const float* hidden, const LayerInputs& inputs, const LayerStates* states);
  /// Mixes the streams for attention or a mixer, to normed, the input of the Linears that role
  /// names.
  void mix_for(Role role);
  /// The same for the MLP or experts, whose input's magnitude is folded into seen.
  void mix_for_mlp(AmaxSlot seen);
  /// Zeros, to which the layer adds what it makes of the mix.
  float* output();
  /// Adds each stream's share of the output; the streams are at out then.
  void add_output(float* out);
  /// The same in memory of the layer's own.
  void add_output() { add_output(buffers_.streams.as<float>()); }
  /// Writes the mix behind the last layer to the first stream of hidden, which holds the streams.
  void join(float* hidden);

 private:
  /// Writes the streams, side by side and normed, to out.
  void normalize_streams(const PackedNorm& norm, const Buffer& out);
  void normalize_wide(const PackedNorm& norm, const Buffer& wide);
  /// Writes the mix of the streams to stream_input. down, up: of its Linears.
  void mix(const PackedStreamMix& mix, Role down, Role up);
  /// Adds the layer's n-grams to the streams in predicted.
  void add_ngrams(const float* embedded, const LayerStates* states);
  int64_t all_width() const { return config_.streams * config_.hidden_size; }
  /// Floats from one stream to the next.
  int64_t stream_size() const { return rows() * config_.hidden_size; }
  /// Columns of one stream, of streams side by side.
  HeadsView stream_of(const Buffer& wide, int64_t stream) const {
    return view(wide.as<float>() + stream * config_.hidden_size, config_.hidden_size, all_width());
  }

  const float* streams_ = nullptr;  ///< [streams, rows, hidden_size]
  Buffer twos_;                     ///< [most_rows, streams]
};

}  // namespace kvcal
