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

}  // namespace kvcal
