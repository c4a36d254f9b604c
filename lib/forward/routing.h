#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "family/model_config.h"

namespace kvcal {

/// Tokens of each expert, and the expert's weight for each token.
struct Routing {
  struct Share {
    std::vector<int32_t> tokens;  ///< ascending
    std::vector<float> weights;
  };
  std::vector<Share> experts;
};

/// logits: [tokens, row_stride] float32, the experts' first. correction: [experts] or empty.
/// expert_scales: [experts] factors of the weights, or empty.
/// Computes in float32, as every family does. Source: transformers, the routers of mixtral,
/// deepseek_v2, deepseek_v3, phimoe, gemma4.
Routing route(const ModelConfig& config, std::span<const float> logits, int64_t row_stride,
              std::span<const float> correction, std::span<const float> expert_scales = {});

}  // namespace kvcal
