#include "model/embedding.h"

#include <algorithm>

namespace kvcal {

void embed_tokens(const ModelConfig& config, const Weights& weights, std::span<const TokenId> ids,
                  std::span<const int32_t> positions, Backend& backend, float* out) {
  backend.embed({.table = weights.at(Role::kEmbedding),
                 .ids = ids,
                 .multiplier = config.embedding_multiplier,
                 .out = out});
  if (!weights.has(Role::kPositionEmbedding)) return;
  const int32_t last = *std::ranges::max_element(positions);
  if (last >= config.max_position_embeddings)
    fail("a sequence of ", last + 1, " tokens is longer than the ", config.max_position_embeddings,
         " positions the model has learned");
  backend.embed({.table = weights.at(Role::kPositionEmbedding),
                 .ids = positions,
                 .accumulate = true,
                 .out = out});
}

}  // namespace kvcal
