#pragma once

#include "backend/backend.h"
#include "forward/token_batch.h"
#include "stored/weights.h"

namespace kvcal {

/// The embeddings of the n-grams that end at each token of the batch, out [tokens,
/// NgramConfig::width]: a row of the layer's table for each hash. Throws Error for a hash that
/// leaves the table, and for a quantized table.
void embed_ngrams(const ModelConfig& config, const Weights& weights, int64_t layer,
                  const TokenBatch& batch, Backend& backend, float* out);

}  // namespace kvcal
