#include "family/tensor_tables.h"

namespace kvcal {

// Granite MoE with an expert for all tokens. Source: transformers, models/granitemoeshared.
Architecture granitemoeshared_architecture() {
  return {
      .name = "granitemoeshared",
      .model_types = {"granitemoeshared"},
      .attention_class = "GraniteMoeSharedAttention",
      .description = "Granite 3.1 MoE with shared experts",
      .defaults = R"({"attention_multiplier": 1.0, "num_local_experts": 8,
                      "num_experts_per_tok": 2, "shared_intermediate_size": 0})",
      .aliases = {{"num_experts", "num_local_experts"},
                  {"shared_expert_intermediate_size", "shared_intermediate_size"}},
      .switches = attention_bias_switches(),
      .numbers = granite_multipliers(),
      .resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; },
      .expert_layers = ExpertLayers::kAll,
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({pre_norm_rows(), attention_rows(), stacked_expert_rows(), stacked_shared_rows()}),
  };
}

}  // namespace kvcal
