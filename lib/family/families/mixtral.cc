#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/mixtral.
Architecture mixtral_architecture() {
  return {
      .name = "mixtral",
      .model_types = {"mixtral"},
      .attention_class = "MixtralAttention",
      .description = "Mixtral 8x7B, 8x22B",
      .defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
                      "num_experts_per_tok": 2, "num_local_experts": 8})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; },
      .expert_layers = ExpertLayers::kAll,
      .sliding_window = SlidingWindow::kAllLayers,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), expert_rows(kMixtralExperts)}),
  };
}

}  // namespace kvcal
