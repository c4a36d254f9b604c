#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/granitemoe.
Architecture granitemoe_architecture() {
  return {
      .name = "granitemoe",
      .model_types = {"granitemoe"},
      .attention_class = "GraniteMoeAttention",
      .description = "Granite 3 MoE",
      .defaults = R"({"attention_multiplier": 1.0, "num_local_experts": 8,
                      "num_experts_per_tok": 2})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .switches = attention_bias_switches(),
      .numbers = granite_multipliers(),
      .resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; },
      .expert_layers = ExpertLayers::kAll,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), stacked_expert_rows()}),
  };
}

}  // namespace kvcal
