#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "family/model_config.h"

namespace kvcal {

/// Which tokens go to each expert, and how much each weighs in a token's sum.
struct Routing {
  struct Share {
    std::vector<int32_t> tokens;  ///< ascending
    std::vector<float> weights;
  };
  std::vector<Share> experts;
};

/// logits: [tokens, row_stride] float32, the experts' first. correction: [experts] or empty.
/// Arithmetic is float32, as in every family. Source: transformers, the routers of mixtral,
/// deepseek_v2, deepseek_v3, phimoe.
Routing route(const ModelConfig& config, std::span<const float> logits, int64_t row_stride,
              std::span<const float> correction);

}  // namespace kvcal
