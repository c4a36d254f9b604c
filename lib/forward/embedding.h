#pragma once

#include <span>

#include "backend/backend.h"
#include "core/token.h"
#include "stored/weights.h"

namespace kvcal {

/// Residual stream before the first layer: token embeddings times the multiplier, plus learned
/// positions where the model has them. positions: [ids], host. Throws Error for a position outside
/// the table.
void embed_tokens(const ModelConfig& config, const Weights& weights, std::span<const TokenId> ids,
                  std::span<const int32_t> positions, Backend& backend, float* out);

/// The part by token of a layer's own input, out [ids, layer_input_size]: its columns of the table
/// of all layers, times sqrt(layer_input_size) / sqrt(2). Source: transformers 5.23
/// `Gemma4TextModel.get_per_layer_inputs` and `Gemma3nTextModel.get_per_layer_inputs`.
void embed_layer_input(const ModelConfig& config, const Weights& weights, int64_t layer,
                       std::span<const TokenId> ids, Backend& backend, float* out);

}  // namespace kvcal
