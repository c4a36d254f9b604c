#include "forward/embedding.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "stored/fp8_checkpoint.h"
#include "stored/weight_rows.h"

namespace kvcal {
namespace {

/// Dequantizes the requested rows, and renumbers the ids.
void embed_fp8(const ModelConfig& config, const TensorView& table,
               const LinearQuantization& quantization, std::span<const TokenId> ids,
               Backend& backend, float* out) {
  const WeightRows rows = dequantized_rows(
      table, quantization.weight_scale, quantization.block_rows, quantization.block_columns, ids);
  std::vector<int32_t> places(ids.size());
  std::iota(places.begin(), places.end(), 0);
  backend.embed({.table = rows.parts[0],
                 .ids = places,
                 .multiplier = config.embedding_multiplier,
                 .out = out});
}

}  // namespace

void embed_tokens(const ModelConfig& config, const Weights& weights, std::span<const TokenId> ids,
                  std::span<const int32_t> positions, Backend& backend, float* out) {
  const TensorView& table = weights.at(Role::kEmbedding);
  if (const LinearQuantization* quantization = weights.quantization(Role::kEmbedding)) {
    embed_fp8(config, table, *quantization, ids, backend, out);
  } else {
    backend.embed(
        {.table = table, .ids = ids, .multiplier = config.embedding_multiplier, .out = out});
  }
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
