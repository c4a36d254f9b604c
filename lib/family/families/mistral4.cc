#include "family/tensor_tables.h"

namespace kvcal {

// DeepSeek's latent attention, whose queries grow with the position, and softmax routing. Source:
// transformers, models/mistral4.
Architecture mistral4_architecture() {
  return {
      .name = "mistral4",
      .model_types = {"mistral4"},
      .attention_class = "Mistral4Attention",
      .description = "Mistral Small 4",
      .defaults = R"({"kv_lora_rank": 256, "q_lora_rank": 1024, "qk_nope_head_dim": 64,
                      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 128,
                      "n_shared_experts": 1, "moe_intermediate_size": 2048,
                      "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1,
                      "num_experts_per_tok": 4, "norm_topk_prob": true, "rope_interleave": true,
                      "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 128.0,
                        "original_max_position_embeddings": 8192, "beta_fast": 32.0,
                        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "llama_4_scaling_beta": 0.1}})",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob},
                   {"rope_interleave", &ModelConfig::rope_is_interleaved}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .has_latent_attention = true,
      .expert_layers = ExpertLayers::kAfterFirst,
      .group_score = GroupScore::kSumOfTwoLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), mlp_rows(),
                               fused_expert_rows(Layout::kOutIn), shared_expert_rows()}),
  };
}

}  // namespace kvcal
