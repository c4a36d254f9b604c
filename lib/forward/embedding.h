#pragma once

#include <span>

#include "backend/backend.h"
#include "core/number.h"
#include "forward/packed_layer.h"
#include "stored/weights.h"

namespace kvcal {

/// Residual stream before the first layer: token embeddings times the multiplier, projected and
/// normed where the model does that, plus learned positions where it has them. positions: [ids],
/// host. resident: of embedding_on_device, or null. Throws Error for a position outside the table.
void embed_tokens(const ModelConfig& config, const Weights& weights, const PackedEmbedding& packed,
                  std::span<const TokenId> ids, std::span<const int32_t> positions,
                  Backend& backend, float* out, const std::byte* resident = nullptr);

/// The embedding's table in the memory of a device: empty where that is a host's, the table takes
/// more than room, is stored in another form than floats, or has more rows than tokens will be
/// embedded, so that sending their rows moves fewer bytes.
Buffer embedding_on_device(const Weights& weights, Backend& backend, int64_t tokens, uint64_t room);

/// The part by token of a layer's own input, out [ids, layer_input_size]: its columns of the table
/// of all layers, times sqrt(layer_input_size) / sqrt(2). Source: transformers 5.23
/// `Gemma4TextModel.get_per_layer_inputs` and `Gemma3nTextModel.get_per_layer_inputs`.
void embed_layer_input(const ModelConfig& config, const Weights& weights, int64_t layer,
                       std::span<const TokenId> ids, Backend& backend, float* out);

}  // namespace kvcal
