#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/qwen2_moe.
Architecture qwen2_moe_architecture() {
  return {
      .name = "qwen2_moe",
      .model_types = {"qwen2_moe"},
      .attention_class = "Qwen2MoeAttention",
      .description = "Qwen1.5-MoE, Qwen2-57B-A14B",
      .defaults =
          R"({"decoder_sparse_step": 1, "num_key_value_heads": 16, "sliding_window": 4096, "max_window_layers": 28,
                      "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
                      "num_experts_per_tok": 4, "num_experts": 60, "qkv_bias": true})",
      .switches = {{"qkv_bias", &ModelConfig::attention_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .expert_layers = ExpertLayers::kEveryStep,
      .sliding_window = SlidingWindow::kEvenBelowMaxWindowLayers,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows(),
                               expert_rows(kProjExperts), gated_shared_expert_rows()}),
  };
}

}  // namespace kvcal
